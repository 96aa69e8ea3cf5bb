"""Agents, tasks and recordings that several tests of replay use."""

import asyncio
import random
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from bus import Subjects
from components.agents.base import Agent, AgentConfig
from components.agents.conversation import Conversation
from components.agents.simple_agent.app import SimpleAgent, SimpleAgentConfig
from components.durable import Call
from components.loading import digest
from contracts.codec import decode, encode
from contracts.events import CallError, Recorded
from contracts.responses import Response, ResponseCreateParams, function_call, output_message, user_message
from contracts.rollouts import RolloutResult, Verdict
from contracts.tasks import Task
from replay.facts import Facts
from replay.trajectory import Trajectory
from tests.unit.replay.recorder import START, SUBJECTS, Recorder, model_reply

GOLDEN = Path(__file__).parents[2] / "golden"
CALCULATOR = SimpleAgentConfig(model="policy", resources="calc_env")
CALC = {"calc": (SimpleAgent, CALCULATOR)}


class Delegating(Agent[AgentConfig]):
    """Has the agent `calc` do it, and adds a turn of its own."""

    async def run(self, task: Task) -> RolloutResult:
        found = await self.agent_named("calc").run(task)
        reply = await self.model.responses(task.responses_create_params)
        return self.result(reply, found.reward)


class Patient(Agent[AgentConfig]):
    """Waits before it asks, with a timeout that is never reached."""

    async def responses(self, request: ResponseCreateParams) -> Response:
        await asyncio.sleep(1.5)
        async with asyncio.timeout(60):
            return await self.model.responses(Conversation(request).request())


class OneTurn(Agent[AgentConfig]):
    """The least that an agent can do."""

    async def responses(self, request: ResponseCreateParams) -> Response:
        return await self.model.responses(request)


class Clumsy(Agent[AgentConfig]):
    """Raises after its first turn."""

    async def responses(self, request: ResponseCreateParams) -> Response:
        reply = await self.model.responses(request)
        raise ValueError(f"{len(reply.output)} items are not what was expected")


class Dicing(Agent[AgentConfig]):
    """Asks with a number of its own, and with the time, in each of three turns."""

    async def responses(self, request: ResponseCreateParams) -> Response:
        for _ in range(3):
            text = f"{self.random().random()} {self.uuid()} {self.now()}"
            reply = await self.model.responses(request.model_copy(update={"input": [user_message(text)]}))
        return reply


class Saving(Agent[AgentConfig]):
    """Takes one generator at its start and asks with a number of it in each of three turns."""

    async def responses(self, request: ResponseCreateParams) -> Response:
        dice = self.random()
        for _ in range(3):
            asked = request.model_copy(update={"input": [user_message(str(dice.random()))]})
            reply = await self.model.responses(asked)
        return reply


def calculator(call: Call) -> bytes | CallError:
    """Plays a model that adds and multiplies with two tools at once, the tools, and a verifier."""
    data = msgspec.json.decode(call.data)
    match call.type:
        case "model.requested":
            if any(item.get("type") == "function_call_output" for item in data["request"]["input"]):
                return model_reply(output_message("12 and 35", item_id="msg_1"))
            return model_reply(
                function_call("c1", "add", '{"a": 5, "b": 7}'), function_call("c2", "multiply", '{"a": 5, "b": 7}')
            )
        case "session.requested":
            return b"null"
        case "tool.requested":
            a, b = msgspec.json.decode(data["arguments"]).values()
            return msgspec.json.encode({"output": str(a + b if data["name"] == "add" else a * b)})
        case "verify.requested":
            extra = {"reward_components": msgspec.Raw(b'{"right": 0.75, "short": 0.25}')}
            return msgspec.json.encode(Verdict(reward=1.0, extra=extra))
    return CallError(kind="bad_request", message=f"nobody answers {call.type}")


def refusing(call: Call) -> bytes | CallError:
    """Plays a model that cannot be reached."""
    return CallError(kind="unavailable", message=f"{call.instance} does not answer")


def task(text: str = "What are 5 + 7 and 5 * 7?") -> dict[str, Any]:
    """A task with two tools."""
    parameters = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    tools = [
        {"type": "function", "name": name, "parameters": parameters, "strict": True} for name in ("add", "multiply")
    ]
    return {"responses_create_params": {"input": [{"role": "user", "content": text}], "tools": tools}, "answer": 12}


def recorded_run(rollouts: int = 3, subjects: Subjects = SUBJECTS, runs: Sequence[str] = ("r1",)) -> Recorder:
    """Runs of the calculator by the simple agent, their deployment included; replies come in various orders."""
    recorder = Recorder(CALC, calculator, subjects)
    recorder.deployment({"calc": "simple_agent"}, {"calc": digest("agents", "simple_agent")})
    for run in runs:
        for index in range(rollouts):
            recorder.rollout(f"{run}-{index:05d}-00", "calc", task(), index=index, order=random.Random(index))
    return recorder


def trajectory_of(recorder: Recorder, rollout_id: str = "r1-00000-00") -> Trajectory:
    """One rollout of a recording."""
    return Trajectory(rollout_id, [event for event in recorder.log if event.event.rolloutid == rollout_id])


def facts(recorder: Recorder) -> Facts:
    """What the deployment of a recording said of itself."""
    return Facts(
        (event, bytes(event.event.data)) for event in recorder.log if event.event.type.startswith("deployment.")
    )


def edited(events: list[Recorded], seq: int, old: bytes, new: bytes) -> list[Recorded]:
    """The events with one of them changed."""
    changed = []
    for recorded in events:
        if recorded.seq == seq:
            assert old in recorded.raw
            raw = recorded.raw.replace(old, new)
            changed.append(Recorded(seq=seq, subject=recorded.subject, event=decode(raw), raw=raw))
        else:
            changed.append(recorded)
    return changed


def overlapping(recorder: Recorder, order: Sequence[int]) -> list[Recorded]:
    """The events as a log has them in which all rollouts are asked for first and then end in this order of indices."""
    asked = {each.event.rolloutid: each for each in recorder.log if each.event.type == "rollout.requested"}
    rollouts = [list(asked)[index] for index in order]
    rest = [each for name in rollouts for each in recorder.log if each.event.rolloutid == name and each != asked[name]]
    found = [*(each for each in recorder.log if not each.event.rolloutid), *asked.values(), *rest]
    times = (START + timedelta(seconds=place) for place in range(len(found)))
    events = [msgspec.structs.replace(each.event, time=time) for each, time in zip(found, times, strict=True)]
    return [
        Recorded(seq=seq, subject=event.subject, event=event, raw=encode(event)) for seq, event in enumerate(events, 1)
    ]
