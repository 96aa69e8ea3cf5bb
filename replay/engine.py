"""Runs an agent's code again on what is recorded, and says where it first does something else.

`verify` asks it. Pure: it gets a trajectory, the agent's class and its config, runs the code on its private loop, and
neither reads nor writes anything.
"""

import re
from typing import Final

import msgspec

from components.agents.base import Agent, AgentConfig
from components.durable import (
    Execution,
    History,
    InvalidHistory,
    NondeterminismError,
    first_difference,
    from_recorded,
    reexecute,
)
from components.durable.difference import shown
from components.durable.location import definition
from components.workers.ending import outcome_of
from components.workers.execution import execution_of
from contracts.events import CallError
from contracts.ids import ROOT_CALL
from contracts.rollouts import RolloutFailure, RolloutRequest, RolloutResult
from replay.errors import BrokenHistory
from replay.trajectory import AgentRun, Trajectory, by_its_code

_REQUEST: Final = msgspec.json.Decoder(RolloutRequest)
_PLACE: Final = re.compile(r" \([^()]*:\d+\)\Z")
"""File and line at the end of an agent error's message: they move when the code is edited."""


class Departure(msgspec.Struct, frozen=True, kw_only=True):
    """Where code and recording part."""

    reason: str
    call_key: str
    seq: int = 0
    """Sequence of the event at which it shows; 0 where no event is to blame."""
    file: str = ""
    line: int = 0
    """Where the agent's code makes the call, or waits instead."""
    field: str = ""
    """Path of the first field that differs."""
    recorded: str = ""
    made: str = ""
    """Both values there; long ones are cut."""


class NextCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the code makes and nobody has answered."""

    key: str
    kind: str
    instance: str
    what: str
    """`model`, `tool`, …"""
    data: bytes
    """What it asks, as it would be stored."""
    file: str
    line: int
    """Where the agent's code waits for it."""


def departure_of(
    trajectory: Trajectory,
    run: AgentRun,
    agent: type[Agent[AgentConfig]],
    config: AgentConfig,
    *,
    loose: bool = False,
) -> Departure | None:
    """Where this code departs from one recorded execution of an agent; None where it does the same to the end.

    With `loose` calls may ask for something else, and the response or the text of an error may be another, as long as
    the same instances are called under the same keys and the reward or the kind of the error is the same.
    Raises `BrokenHistory` where the recorded events are no history of one execution.
    """
    was = trajectory.ending(run.replied)
    ended_itself = by_its_code(was)
    execution = execution_in(trajectory, run, agent, config)
    try:
        reexecute(execution, msgspec.structs.replace(history_in(trajectory, run), complete=ended_itself, loose=loose))
        if was is None or not ended_itself:
            return None
        return _compared(run, agent, was, outcome_of(execution), loose=loose)
    except NondeterminismError as error:
        return _departure(error)
    except InvalidHistory as error:
        raise BrokenHistory(f"rollout {trajectory.rollout_id}: {error}") from error
    finally:
        execution.close()


class Upcoming(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent's code does next, where its history ends."""

    calls: tuple[NextCall, ...] = ()
    """Those that it makes and that are not recorded."""
    result: RolloutResult | None = None
    error: CallError | None = None
    """How it ends, where it does."""
    departure: Departure | None = None
    """Where it departs from the recorded part already; then nothing else is known."""


def upcoming(trajectory: Trajectory, run: AgentRun, agent: type[Agent[AgentConfig]], config: AgentConfig) -> Upcoming:
    """What this code does after the recorded part. Raises `BrokenHistory`."""
    execution = execution_in(trajectory, run, agent, config)
    try:
        calls = reexecute(execution, msgspec.structs.replace(history_in(trajectory, run), complete=False))
        if execution.done:
            found = outcome_of(execution)
            return Upcoming(error=found) if isinstance(found, CallError) else Upcoming(result=found)
        made = [(call, *execution.where(call.key)) for call in calls if call.key in execution.outstanding]
        return Upcoming(
            calls=tuple(
                NextCall(
                    key=call.key,
                    kind=call.kind,
                    instance=call.instance,
                    what=call.type.partition(".")[0],
                    data=call.data,
                    file=file,
                    line=line,
                )
                for call, file, line in made
            )
        )
    except NondeterminismError as error:
        return Upcoming(departure=_departure(error))
    except InvalidHistory as error:
        raise BrokenHistory(f"rollout {trajectory.rollout_id}: {error}") from error
    finally:
        execution.close()


def _departure(error: NondeterminismError) -> Departure:
    return Departure(
        reason=error.reason,
        call_key=error.call_key,
        seq=error.seq,
        file=error.file,
        line=error.line,
        field=error.field,
        recorded=error.recorded,
        made=error.made,
    )


def execution_in(
    trajectory: Trajectory, run: AgentRun, agent: type[Agent[AgentConfig]], config: AgentConfig
) -> Execution[RolloutResult]:
    """A fresh execution of one of the rollout's agents. Raises `BrokenHistory`."""
    request, fork = trajectory.decoded(run.requested, _REQUEST), trajectory.request.fork
    seed = fork.nested.get(run.requested.event.callkey, "") if fork is not None else ""
    return execution_of(agent, config, run.requested.event, request, prefix=run.prefix, seed=seed)


def history_in(trajectory: Trajectory, run: AgentRun) -> History:
    """What is recorded of it. Raises `InvalidHistory`."""
    fork = trajectory.request.fork
    routed = fork.routed if fork is not None and not run.prefix else None
    return from_recorded(trajectory.events, prefix=run.prefix, blobs=trajectory.blobs, routed=routed)


def _compared(
    run: AgentRun,
    agent: type[Agent[AgentConfig]],
    was: RolloutResult | RolloutFailure,
    now: RolloutResult | CallError,
    *,
    loose: bool,
) -> Departure | None:
    """Where two endings differ."""
    if isinstance(was, RolloutResult) and isinstance(now, RolloutResult):
        one, other = (msgspec.json.encode(msgspec.structs.replace(result, stats=None)) for result in (was, now))
        if one == other or (loose and was.reward == now.reward):
            return None
        return _departed(run, agent, "the result is another one", first_difference(one, other))
    if same_failure(was, now) or (loose and _same_kind(was, now)):
        return None
    return _departed(run, agent, "the code ends in another way", ("", _told(was), _told(now)))


def same_failure(was: RolloutResult | RolloutFailure | None, now: RolloutResult | CallError) -> bool:
    """Whether both failed, in the same way: with the same kind and message, from whatever line."""
    return isinstance(was, RolloutFailure) and isinstance(now, CallError) and _told(was) == _told(now)


def _same_kind(was: RolloutResult | RolloutFailure, now: RolloutResult | CallError) -> bool:
    return isinstance(was, RolloutFailure) and isinstance(now, CallError) and was.kind == now.kind


def _told(outcome: RolloutResult | RolloutFailure | CallError) -> str:
    """An ending in words, without what changes when code is only moved."""
    if isinstance(outcome, RolloutResult):
        return f"completed with reward {outcome.reward:g}"
    return f"{outcome.kind}: {_PLACE.sub('', outcome.message)}"


def _departed(
    run: AgentRun, agent: type[Agent[AgentConfig]], reason: str, difference: tuple[str, str, str]
) -> Departure:
    field, recorded, made = difference
    file, line = definition(agent.run if agent.run is not Agent.run else agent.responses)
    return Departure(
        reason=reason,
        call_key=run.requested.event.callkey or ROOT_CALL,
        seq=run.replied.seq if run.replied is not None else 0,
        file=file,
        line=line,
        field=field.removeprefix("."),
        recorded=shown(recorded),
        made=shown(made),
    )
