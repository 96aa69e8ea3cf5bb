"""Rollouts whose model calls have tokens, for the tests of the adapters that run a trainer."""

from collections.abc import Callable
from typing import Any

import msgspec

from bus import Bus
from contracts.events import Event
from contracts.rollouts import RolloutRequest, RolloutResult, RolloutStats, Timings, Usage
from contracts.tokens import Capture
from tests.bus.trainers import Agents
from tests.unit.contracts.conversations import capture

PATIENCE_S = 30.0


Said = list[tuple[str, Capture]]
"""The model calls of a rollout: the ID of the item put out, and the capture."""


TWO_TURNS: Said = [("a0", capture([1, 2], [3])), ("a1", capture([4], [5, 6], cited=("m_0", 3)))]


def speak(agents: Agents, said: Callable[[RolloutRequest], Said], *, flawed: int = 0) -> None:
    """From now on each rollout makes model calls that have captures, and completes with the reward of its index.

    So many more of its calls had tokens that were refused.
    """

    async def behave(event: Event, request: RolloutRequest) -> None:
        calls = said(request)
        items = [item(name) for name, _ in calls]
        for place, (_, captured) in enumerate(calls):
            await model_call(
                agents.bus, event.rolloutid, f"m_{place}", ["q", *items[:place]], [items[place]], captured=captured
            )
        response = {"id": "r", "object": "response", "created_at": 0, "model": "m", "status": "completed"}
        result = RolloutResult(
            response=msgspec.Raw(msgspec.json.encode({**response, "output": items})),
            reward=float(request.rollout_index),
            stats=RolloutStats(
                usage=Usage(output_tokens=3),
                timings=Timings(queue_s=0.0, total_s=0.0),
                captured=len(calls),
                flawed=flawed,
            ),
        )
        await agents.end(event, "completed", msgspec.json.encode(result))

    agents.behave = behave


def item(name: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "id": name, "status": "completed", "content": []}


async def model_call(bus: Bus, rollout: str, key: str, asked: list[Any], said: list[Any], *, captured: Capture) -> None:
    """Puts a call into the log: the items of its request, those of its reply, and its tokens."""
    requested = bus.event(
        "model.requested",
        bus.subjects.request("models", "policy", 1, rollout, key),
        msgspec.json.encode({"request": {"input": asked}}),
        rolloutid=rollout,
        callkey=key,
        replyto=bus.subjects.reply("agent", rollout, key),
    )
    await bus.publish(requested)
    replied = bus.event(
        "model.replied",
        requested.replyto,
        msgspec.json.encode({"output": said}),
        rolloutid=rollout,
        callkey=key,
        capture=msgspec.Raw(msgspec.json.encode(captured)),
    )
    await bus.publish(replied)
