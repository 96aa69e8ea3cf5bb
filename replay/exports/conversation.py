"""What was said in a rollout, as Responses items or as Chat Completions messages.

Called by `replay export --format items` and `chat`. Pure. Of a rollout that completed it is the task's input and all
new items of its response; of another, the last model call of its own agent and what was answered. What agents that it
called said among themselves is not in it.
"""

from typing import Any, Final

import msgspec
from pydantic import ValidationError

from contracts.convert import request_to_chat
from contracts.convert.style import ChatStyle
from contracts.errors import NoChatForm
from contracts.responses import ResponseCreateParams
from contracts.rollouts import RolloutFailure, RolloutResult
from replay.errors import CannotExport
from replay.points import turns
from replay.trajectory import Trajectory

Json = dict[str, Any]

_LEFT_OUT: Final = ("truncation", "include", "previous_response_id", "conversation", "prompt", "background")
"""Options of the request that say nothing of the conversation."""


def items_line(trajectory: Trajectory) -> Json:
    """The conversation as Responses items."""
    request = _conversation(trajectory)
    return {
        **_facts(trajectory),
        "instructions": request.get("instructions"),
        "tools": request.get("tools") or [],
        "items": request["input"],
    }


def chat_line(trajectory: Trajectory) -> Json:
    """The conversation as Chat Completions messages. Raises `CannotExport` that names what has no such form."""
    request = _conversation(trajectory)
    kept = {name: request[name] for name in ("input", "instructions", "tools") if request.get(name)}
    try:
        params = ResponseCreateParams.model_validate({"input": [], **kept})
        chat = request_to_chat(params, ChatStyle(drop=_LEFT_OUT)).to_dict()
    except (NoChatForm, ValidationError) as error:
        what = error.name if isinstance(error, NoChatForm) else f"{error.error_count()} items are not as they should be"
        raise CannotExport(
            f"rollout {trajectory.rollout_id} has no form as Chat Completions messages: {what}; --format items has all"
        ) from error
    return {**_facts(trajectory), "messages": chat["messages"], "tools": chat.get("tools") or []}


def _facts(trajectory: Trajectory) -> Json:
    request, outcome = trajectory.request, trajectory.outcome
    facts: Json = {
        "rollout_id": trajectory.rollout_id,
        "run_id": request.run_id,
        "task_index": request.task_index,
        "rollout_index": request.rollout_index,
        "agent": request.agent,
        "outcome": trajectory.state,
        "reward": trajectory.reward,
    }
    if isinstance(outcome, RolloutFailure):
        facts["error"] = {"kind": outcome.kind, "message": outcome.message}
    return facts


def _conversation(trajectory: Trajectory) -> Json:
    """A request whose input is all that was said."""
    try:
        if isinstance(outcome := trajectory.outcome, RolloutResult):
            task = msgspec.json.decode(trajectory.request.task)
            request: Json = dict(task.get("responses_create_params") or {})
            reply = msgspec.json.decode(trajectory.whole_response(outcome))
        elif calls := turns(trajectory):
            request = msgspec.json.decode(trajectory.asked(calls[-1]))
            replied = calls[-1].replied
            reply = msgspec.json.decode(trajectory.data(replied.event)) if replied is not None else {}
        else:
            request = dict(msgspec.json.decode(trajectory.request.task).get("responses_create_params") or {})
            reply = {}
    except (msgspec.DecodeError, AttributeError) as error:
        raise CannotExport(f"rollout {trajectory.rollout_id} holds no conversation: {error}") from error
    said = request.get("input") or []
    items = [{"role": "user", "content": said}] if isinstance(said, str) else list(said)
    return {**request, "input": [*items, *(reply.get("output") or ())]}
