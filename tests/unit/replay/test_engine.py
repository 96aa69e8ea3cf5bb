"""Where re-executed code departs from what is recorded: everything here was recorded by running real agents."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from components.agents.base import Agent, AgentConfig
from components.agents.simple_agent.app import SimpleAgent, SimpleAgentConfig
from components.durable import Call
from components.durable.matching import UNANSWERED
from contracts.events import CallError
from contracts.responses import Response, ResponseCreateParams
from contracts.rollouts import RolloutResult
from contracts.tasks import Task
from replay.engine import Departure, departure_of
from replay.trajectory import Trajectory
from tests.unit.replay.examples import (
    CALC,
    CALCULATOR,
    Clumsy,
    Delegating,
    OneTurn,
    Patient,
    calculator,
    edited,
    recorded_run,
    refusing,
    task,
    trajectory_of,
)
from tests.unit.replay.recorder import Recorder

PLAIN = AgentConfig(model="policy", resources="calc_env")
Kind = type[Agent[Any]]


def departure(trajectory: Trajectory, agent: Kind, config: AgentConfig = PLAIN, run: int = 0) -> Departure | None:
    return departure_of(trajectory, list(trajectory.executions())[run], agent, config)


def recorded(
    agent: Kind, answer: Callable[[Call], bytes | CallError] = calculator, config: AgentConfig = PLAIN
) -> Trajectory:
    recorder = Recorder({**CALC, "it": (agent, config)}, answer)
    recorder.rollout("r1-00000-00", "it", task(), order=random.Random(5))
    return trajectory_of(recorder)


class Twice(Agent[AgentConfig]):
    """Asks twice at once."""

    async def responses(self, request: ResponseCreateParams) -> Response:
        one, _ = await asyncio.gather(self.model.responses(request), self.model.responses(request))
        return one


class TwiceOtherwise(Agent[AgentConfig]):
    """Asks twice at once, the second time something else."""

    async def responses(self, request: ResponseCreateParams) -> Response:
        other = request.model_copy(update={"temperature": 0.5})
        one, _ = await asyncio.gather(self.model.responses(request), self.model.responses(other))
        return one


class Thrice(Agent[AgentConfig]):
    """Asks once more than `Twice`."""

    async def responses(self, request: ResponseCreateParams) -> Response:
        one, _ = await asyncio.gather(self.model.responses(request), self.model.responses(request))
        return await self.model.responses(request) if one.output else one


class OtherResult(Agent[AgentConfig]):
    """Calls what `Agent` calls, and halves the reward."""

    async def responses(self, request: ResponseCreateParams) -> Response:
        return await self.model.responses(request)

    async def run(self, task: Task) -> RolloutResult:
        await self.resources.seed_session(task)
        result = await self.resources.verify(task, await self.responses(task.responses_create_params))
        return RolloutResult(response=result.response, reward=result.reward / 2, extra=result.extra)


class Careful(Agent[AgentConfig]):
    """Does what `Clumsy` does, without raising."""

    async def responses(self, request: ResponseCreateParams) -> Response:
        return await self.model.responses(request)


class ClumsyInOtherWords(Agent[AgentConfig]):
    """Raises at the same place as `Clumsy`, something else."""

    async def responses(self, request: ResponseCreateParams) -> Response:
        await self.model.responses(request)
        raise KeyError("other")


@pytest.mark.parametrize("agent", [Twice, Patient, Clumsy, OneTurn, OtherResult])
def test_the_code_that_was_recorded_does_the_same(agent: Kind) -> None:
    assert departure(recorded(agent), agent) is None


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_replies_does_not_matter(seed: int) -> None:
    recorder = Recorder(CALC, calculator)
    recorder.rollout("r1-00000-00", "calc", task(), order=random.Random(seed))
    assert departure(trajectory_of(recorder), SimpleAgent, CALCULATOR) is None


@pytest.mark.parametrize("stop", range(5))
def test_a_rollout_in_flight_is_the_same_up_to_where_it_is(stop: int) -> None:
    recorder = Recorder(CALC, calculator)
    recorder.rollout("r1-00000-00", "calc", task(), stop_after=stop)
    assert departure(trajectory_of(recorder), SimpleAgent, CALCULATOR) is None


def test_an_agent_and_the_one_that_it_calls_are_both_verified() -> None:
    trajectory = recorded(Delegating)
    assert departure(trajectory, Delegating, run=0) is None
    assert departure(trajectory, SimpleAgent, CALCULATOR, run=1) is None
    found = departure(trajectory, SimpleAgent, SimpleAgentConfig(model="other", resources="calc_env"), run=1)
    assert found is not None
    assert (found.call_key, found.field, found.made) == ("m_0--m_0", "instance", "other")


def test_a_call_with_other_arguments_is_named_by_key_line_and_field() -> None:
    found = departure(recorded(Twice), TwiceOtherwise)
    assert found is not None
    assert (found.call_key, found.field) == ("m2_0", "data.request.temperature")
    assert (found.recorded, found.made) == ("nothing", "0.5")
    assert found.file == __file__
    assert found.line == TwiceOtherwise.responses.__code__.co_firstlineno + 2


def test_a_changed_config_departs_where_it_has_an_effect() -> None:
    found = departure(trajectory_of(recorded_run(1)), SimpleAgent, SimpleAgentConfig(model="m", resources="calc_env"))
    assert found is not None
    assert (found.reason, found.call_key, found.recorded, found.made) == (
        "the call has another target",
        "m_0",
        "policy",
        "m",
    )


def test_a_call_that_is_not_recorded_departs() -> None:
    found = departure(recorded(Twice), Thrice)
    assert found is not None
    assert found.call_key == "m_0"
    assert found.file == __file__


def test_a_recorded_call_that_is_not_made_departs() -> None:
    found = departure(recorded(Thrice), Twice)
    assert found is not None
    assert found.reason == "the call has another target"


def test_another_result_after_the_same_calls_departs_at_the_end() -> None:
    found = departure(recorded(OneTurn), OtherResult)
    assert found is not None
    assert (found.reason, found.field, found.call_key) == ("the result is another one", "reward", "run")
    assert (found.recorded, found.made) == ("1.0", "0.5")
    assert found.file == __file__


def test_a_failure_that_does_not_come_again_departs() -> None:
    found = departure(recorded(Clumsy), Careful)
    assert found is not None
    assert "the code makes a call that is not recorded" in found.reason


def test_another_exception_than_the_recorded_one_departs_at_the_end() -> None:
    found = departure(recorded(Clumsy), ClumsyInOtherWords)
    assert found is not None
    assert found.reason == "the code ends in another way"
    assert found.recorded.startswith("agent_error: ValueError: ")
    assert found.made == "agent_error: KeyError: 'other'"


def test_a_failed_call_that_ended_the_rollout_ends_it_again() -> None:
    assert departure(recorded(OneTurn, refusing), OneTurn) is None


@pytest.mark.parametrize("kind", ["deadline", "cancelled", "nondeterminism"])
def test_code_that_was_ended_from_outside_need_not_end(kind: str) -> None:
    recorder = Recorder(CALC, calculator)
    recorder.rollout("r1-00000-00", "calc", task(), stop_after=2)
    requested = recorder.log[0].event
    recorder.write(
        "rollout.failed",
        requested.replyto,
        b'{"kind": "%s", "message": "too long"}' % kind.encode(),
        rolloutid="r1-00000-00",
        callkey="run",
    )
    assert departure(trajectory_of(recorder), SimpleAgent, CALCULATOR) is None


def test_a_rollout_that_ended_itself_must_not_go_on() -> None:
    recorder = Recorder(CALC, calculator)
    recorder.rollout("r1-00000-00", "calc", task(), stop_after=2)
    recorder.write(
        "rollout.failed",
        recorder.log[0].event.replyto,
        b'{"kind": "tool_error", "message": "no"}',
        rolloutid="r1-00000-00",
        callkey="run",
    )
    found = departure(trajectory_of(recorder), SimpleAgent, CALCULATOR)
    assert found is not None
    assert "the code waits for the reply to this call, and none is recorded" in found.reason


@pytest.mark.parametrize(
    ("what", "old", "new"),
    [
        ("model.requested", b"What are 5", b"What is 5"),
        ("model.replied", b"multiply", b"subtract"),
        ("tool.requested", b'\\"a\\": 5', b'\\"a\\": 6'),
        ("tool.replied", b'"output":"12"', b'"output":"13"'),
        ("verify.replied", b'"reward":1.0', b'"reward":0.5'),
        ("rollout.completed", b"12 and 35", b"12 and 36"),
    ],
)
def test_an_edited_event_is_noticed(what: str, old: bytes, new: bytes) -> None:
    """E4, as verify sees it."""
    events = [event for event in recorded_run(1).log if event.event.rolloutid]
    seq = next(event.seq for event in events if event.event.type == what and old in event.raw)
    changed = Trajectory("r1-00000-00", edited(events, seq, old, new))
    found = departure(changed, SimpleAgent, CALCULATOR)
    assert found is not None
    assert found.seq >= seq


def test_each_reply_that_is_deleted_is_told_at_its_call_with_the_line_that_waits_for_it() -> None:
    """E4, as verify sees it: not where something follows that could not have been."""
    events = [event for event in recorded_run(1).log if event.event.rolloutid]
    for gone in (event for event in events if event.event.type.endswith(".replied")):
        found = departure(
            Trajectory("r1-00000-00", [event for event in events if event is not gone]), SimpleAgent, CALCULATOR
        )
        assert found is not None
        asked = next(event.seq for event in events if event.event.callkey == gone.event.callkey)
        assert (found.reason, found.call_key, found.seq) == (UNANSWERED, gone.event.callkey, asked)
        assert found.file.endswith(".py")
        assert found.line > 0
