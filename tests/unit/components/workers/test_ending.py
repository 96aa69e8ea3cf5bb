"""How executions end: a result with a finite reward, or a failure that everybody can read (E9)."""

import asyncio
import json
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from components.durable import CallFailed, Context, Execution
from components.workers.ending import MAX_MESSAGE, ending, error_data, failure, outcome_of
from components.workers.tally import Tally
from contracts.events import CallError, Event
from contracts.rollouts import RolloutFailure, RolloutResult, RolloutStats

NOW = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
STATS: RolloutStats = Tally(NOW).stats(NOW, NOW)
AWAY = CallError(kind="unavailable", message="the engine is away", details={"status": "503"})


def request(callkey: str = "run") -> Event:
    return Event(id="e", source="s", type="rollout.requested", time=NOW, subject="s", rolloutid="r", callkey=callkey)


def ran(code: Callable[[], Any]) -> Execution[RolloutResult]:
    """The finished execution of code that returns or raises at once."""

    async def main(_context: Context) -> RolloutResult:
        return code()  # type: ignore[no-any-return]

    execution = Execution("r", main, time=NOW)
    assert execution.start() == []
    return execution


def raising(error: BaseException) -> Callable[[], Any]:
    def code() -> None:
        raise error

    return code


def result(**changes: Any) -> Callable[[], Any]:
    return lambda: RolloutResult(**{"response": msgspec.Raw(b"{}"), "reward": 0.5, **changes})


def failed(code: Callable[[], Any]) -> CallError:
    found = outcome_of(ran(code))
    assert isinstance(found, CallError)
    return found


@pytest.mark.parametrize(
    "code", [lambda: socket.create_server(("", 0)), lambda: msgspec.json.decode(b"{"), lambda: json.loads("{")]
)
def test_what_an_agent_did_wrong_is_told_with_its_own_line(code: Callable[[], Any]) -> None:
    """Not with the line of JetGym, or of a library, that noticed it."""
    assert failed(code).message.endswith(f" ({__file__}:{code.__code__.co_firstlineno})")


def test_a_result_ends_a_rollout_with_its_counts() -> None:
    what, data = ending(request(), ran(result(extra={"why": msgspec.Raw(b'"so"')})), STATS)
    assert what == "rollout.completed"
    assert msgspec.json.decode(data, type=RolloutResult) == RolloutResult(
        response=msgspec.Raw(b"{}"), reward=0.5, extra={"why": msgspec.Raw(b'"so"')}, stats=STATS
    )


def test_a_called_agent_replies_to_its_caller() -> None:
    assert ending(request("m_0"), ran(result()), STATS)[0] == "agent.replied"
    what, data = ending(request("m_0"), ran(raising(CallFailed(AWAY, "m_0--m_0"))), STATS)
    assert (what, msgspec.json.decode(data, type=CallError)) == ("agent.failed", AWAY)
    assert msgspec.json.decode(data, type=RolloutFailure).stats == STATS


@pytest.mark.parametrize(("reward", "number"), [(True, 1.0), (False, 0.0), (3, 3.0), (-0.5, -0.5)])
def test_a_reward_is_a_number_in_the_log_whatever_number_it_was(reward: Any, number: float) -> None:
    _, data = ending(request(), ran(result(reward=reward)), STATS)
    assert msgspec.json.decode(data, type=RolloutResult).reward == number


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), -float("inf"), None, "1.0", 10**400])
def test_what_is_no_finite_number_is_no_reward(reward: Any) -> None:
    assert failed(result(reward=reward)).kind == "agent_error"


@pytest.mark.parametrize("returned", [None, 1.0, {"reward": 1.0}, msgspec.Raw(b"{}")])
def test_only_a_rollout_result_is_a_result(returned: Any) -> None:
    error = failed(lambda: returned)
    assert error.kind == "agent_error"
    assert f"it returned {type(returned).__name__}" in error.message


@pytest.mark.parametrize(
    "changes",
    [
        {"response": msgspec.Raw(b"")},
        {"response": msgspec.Raw(b'{"output": [')},
        {"response": {"output": {1, 2}, "model": object()}},
        {"extra": {"why": msgspec.Raw(b"so")}},
        {"extra": {"why": "\udc80"}},
        {"extra": []},
    ],
)
def test_a_result_that_is_no_json_is_a_failure_and_never_an_unreadable_event(changes: dict[str, Any]) -> None:
    error = failed(result(**changes))
    assert error.kind == "agent_error"
    assert "the RolloutResult is not JSON (see Agent.result)" in error.message


def test_what_an_agent_raises_is_told_with_its_place_and_traceback() -> None:
    error = failed(raising(KeyError("tool")))
    assert error.kind == "agent_error"
    assert error.message.startswith("KeyError: 'tool' (")
    assert ":" in error.message.rpartition("/")[2]
    assert error.details["exception"] == "KeyError"
    assert "in raising" in error.details["traceback"] or "in code" in error.details["traceback"]


def test_errors_that_cannot_be_printed_or_encoded_are_still_told() -> None:
    class UnprintableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert "its text cannot be had: RuntimeError" in failed(raising(UnprintableError())).message
    for error in (ValueError("half \udc80 of it"), ValueError("x" * 100_000)):
        _, data = ending(request(), ran(raising(error)), STATS)
        told = msgspec.json.decode(data, type=RolloutFailure)
        assert told.kind == "agent_error"
        assert len(told.message) <= MAX_MESSAGE
        assert max(map(len, told.details.values())) <= MAX_MESSAGE
        assert told.message.startswith(("ValueError: half ? of it (", "ValueError: xxx"))


def test_exits_and_cancellations_are_failures_of_their_rollout() -> None:
    for error in (SystemExit(1), asyncio.CancelledError(), GeneratorExit()):
        assert failed(raising(error)).kind == "agent_error"


def test_a_failed_call_that_is_not_caught_fails_the_rollout_with_its_own_kind() -> None:
    _, data = ending(request(), ran(raising(CallFailed(AWAY, "m_0"))), STATS)
    told = msgspec.json.decode(data, type=RolloutFailure)
    assert (told.kind, told.message, told.details, told.stats) == (AWAY.kind, AWAY.message, AWAY.details, STATS)


def test_a_group_of_failed_calls_is_the_first_of_them_and_a_mixed_one_is_the_agents() -> None:
    call = CallFailed(AWAY, "m1_0")
    other = CallFailed(CallError(kind="deadline", message="late"), "m2_0")
    groups = [ExceptionGroup("", [call, other]), ExceptionGroup("", [ExceptionGroup("", [call]), other])]
    assert [failed(raising(group)) for group in groups] == [AWAY, AWAY]
    assert failed(raising(ExceptionGroup("", [call, ValueError("mine")]))).kind == "agent_error"


@pytest.mark.parametrize(("kind", "what"), [("cancelled", "rollout.cancelled"), ("deadline", "rollout.failed")])
def test_a_cancelled_rollout_has_its_own_type(kind: Any, what: str) -> None:
    assert failure(request(), CallError(kind=kind, message="m"), None)[0] == what


def test_no_failure_has_a_reward() -> None:
    for callkey in ("run", "m_0"):
        assert b"reward" not in failure(request(callkey), AWAY, STATS)[1]


def test_an_error_becomes_data_that_can_be_stored() -> None:
    error = CallError(kind="tool_error", message="\udcff" * 10_000, details={"where": "\ud800"})
    told = msgspec.json.decode(error_data(error), type=CallError)
    assert (told.message, told.details) == ("?" * MAX_MESSAGE, {"where": "?"})
