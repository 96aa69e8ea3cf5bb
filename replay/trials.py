"""What does an agent's code do when the replies that are recorded come in another order?

Called by `lint`, in processes of its own. An execution is started and each of its calls is answered with what is
recorded under its key, in an order that follows from a seed: the first call first (seed 0), or any. Where the code then
makes a call that is not recorded, a reply to another one of that kind is taken, or it fails. So the same code with the
same seed must always do the same. Pure, but for what the code itself does.
"""

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import msgspec

from components.agents.base import Agent, AgentConfig
from components.durable import Call, Execution, Reply
from components.workers.ending import outcome_of
from contracts.events import CallError, Event
from contracts.rollouts import RolloutResult
from replay.engine import execution_in
from replay.suspects import Suspect, watched
from replay.trajectory import AgentRun, Trajectory

_BEYOND: Final = 100
"""Calls that the code may make beyond those that are recorded."""
_STEP: Final = timedelta(milliseconds=100)
_NOBODY: Final = msgspec.json.encode(CallError(kind="unavailable", message="nothing is recorded for this call"))


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the code made."""

    key: str
    target: str
    """`<type> to <kind>/<instance>`."""
    data: bytes
    file: str
    line: int


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """All that the code did in one trial."""

    calls: list[Made]
    ended: bytes
    """The result's JSON, or the error in words."""
    file: str
    line: int
    """Where the code is defined."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One order of the replies, tried twice in one process."""

    seed: int
    first: Trace
    again: Trace


class Trials(msgspec.Struct, frozen=True, kw_only=True):
    """Of one rollout's agent, in one process."""

    trials: list[Trial]
    suspects: list[Suspect]


def try_out(
    trajectory: Trajectory,
    run: AgentRun,
    agent: type[Agent[AgentConfig]],
    config: AgentConfig,
    seeds: Sequence[int],
) -> Trials:
    """Tries an execution under each seed. Raises `BrokenHistory`."""
    answers = _Answers(trajectory)
    trials = []
    with watched() as suspects:
        for seed in seeds:
            first, again = (
                _trial(execution_in(trajectory, run, agent, config), trajectory, answers, seed) for _ in "12"
            )
            trials.append(Trial(seed=seed, first=first, again=again))
    return Trials(trials=trials, suspects=list(suspects))


class _Answers:
    def __init__(self, trajectory: Trajectory) -> None:
        self._trajectory = trajectory
        self._by_key: dict[str, tuple[str, Event]] = {}
        self._by_target: dict[str, Event] = {}
        for call in trajectory.calls.values():
            if call.replied is None:
                continue
            asked, event = call.requested.event, call.replied.event
            target = f"{asked.type} to {call.kind}/{call.instance}"
            self._by_key[call.key] = target, event
            self._by_target.setdefault(target, event)
        self.limit = len(trajectory.calls) + _BEYOND

    def to(self, call: Call) -> tuple[str, bytes]:
        """Type and data of the reply."""
        what, target = call.type.partition(".")[0], _target(call)
        if call.kind == "timers":
            return "timer.replied", b"null"
        known, event = self._by_key.get(call.key, ("", None))
        event = event if known == target else self._by_target.get(target)
        return (event.type, self._trajectory.data(event)) if event is not None else (f"{what}.failed", _NOBODY)


def _trial(execution: Execution[RolloutResult], trajectory: Trajectory, answers: _Answers, seed: int) -> Trace:
    made: list[Made] = []

    def note(call: Call) -> None:
        file, line = execution.where_called(call.key)
        made.append(Made(key=call.key, target=_target(call), data=call.data, file=file, line=line))

    defined = execution.where()
    order = random.Random(seed) if seed else None  # noqa: S311 - an order, no secret
    execution.watch(note)
    now = trajectory.started
    try:
        waiting = execution.start()
        while waiting and not execution.done and len(made) <= answers.limit:
            ready = [place for place, call in enumerate(waiting) if call.kind != "timers"]
            place = order.choice(ready) if order and ready else ready[0] if ready else 0
            call = waiting.pop(place)
            now += _STEP + timedelta(seconds=call.delay)
            what, data = answers.to(call)
            waiting += execution.deliver(Reply(key=call.key, type=what, data=data, time=now, id=f"reply-{call.key}"))
        ended = _ended(execution)
    finally:
        execution.watch(None)
        execution.close()
    return Trace(calls=made, ended=ended, file=defined[0], line=defined[1])


def _ended(execution: Execution[RolloutResult]) -> bytes:
    if not execution.done:
        return b"it went on calling"
    found = outcome_of(execution)
    if isinstance(found, RolloutResult):
        return msgspec.json.encode(msgspec.structs.replace(found, stats=None))
    return f"{found.kind}: {found.message}".encode("utf-8", "replace")


def _target(call: Call) -> str:
    return f"{call.type} to {call.kind}/{call.instance}"
