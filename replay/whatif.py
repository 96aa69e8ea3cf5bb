"""What would the agent's code do next, if a rollout had gone otherwise?

Called by `replay whatif`, and by `fork` before it writes. It re-executes the code on the shared part of a fork, in the
agent's venv where it has one, and compares the calls that the code makes then with the recorded ones. It writes nothing
and calls nobody.
"""

from typing import Literal

import msgspec

from contracts.rollouts import RolloutResult
from replay.bulk import Bulk
from replay.engine import Departure, Upcoming, same_failure
from replay.fork import Plan
from replay.trajectory import Call, Trajectory
from replay.words import Change, changes


class Next(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the code would make."""

    key: str
    what: str
    instance: str
    file: str
    line: int
    request: msgspec.Raw
    """What would be asked, whole."""
    compared: Literal["same", "differs", "new"]
    """With the recorded call of the same key; `new` where there is none."""
    instead_of: str = ""
    """What is recorded under the key, where it has another target."""
    changes: tuple[Change, ...] = ()


class Whatif(msgspec.Struct, frozen=True, kw_only=True):
    """What comes next."""

    rollout_id: str
    shared: int
    """Calls that the code was given the replies to."""
    verdict: Literal["same", "differs"]
    """Whether the code does what it did in the recording."""
    calls: tuple[Next, ...] = ()
    departure: Departure | None = None
    """Where the code departs from the shared part already."""
    reward: float | None = None
    error: str = ""
    """How the rollout would end, where it would."""
    changes: tuple[Change, ...] = ()
    """Of the result, then."""


async def whatif(plan: Plan, bulk: Bulk) -> Whatif:
    """What the code does after the shared part of a fork. Raises `ReplayError`."""
    fork = plan.trajectory()
    return _told(plan, fork, await bulk.upcoming(fork))


def _told(plan: Plan, fork: Trajectory, ahead: Upcoming) -> Whatif:
    parent, shared = plan.parent, len(plan.shared)
    found = Whatif(rollout_id=parent.rollout_id, shared=shared, verdict="differs")
    if ahead.departure is not None:
        return msgspec.structs.replace(found, departure=ahead.departure)
    if ahead.error is not None:
        return msgspec.structs.replace(
            found,
            verdict="same" if same_failure(parent.outcome, ahead.error) else "differs",
            error=f"{ahead.error.kind}: {ahead.error.message}",
        )
    if ahead.result is not None:
        return _ending(plan, fork, ahead.result, found)
    calls = []
    routed = fork.request.fork.routed if fork.request.fork is not None else {}
    for call in ahead.calls:
        request = fork.whole(call.what, call.data, f"call {call.key}")
        recorded = parent.calls.get(call.key)
        instance = routed.get(call.instance, call.instance)
        target = f"{call.what} {instance}"
        compared, differences = _compared(recorded, target, request, parent)
        calls.append(
            Next(
                key=call.key,
                what=call.what,
                instance=instance,
                file=call.file,
                line=call.line,
                request=msgspec.Raw(request),
                compared=compared,
                instead_of=_target(recorded) if recorded is not None and _target(recorded) != target else "",
                changes=differences,
            )
        )
    same = bool(calls) and all(call.compared == "same" for call in calls)
    return msgspec.structs.replace(found, verdict="same" if same else "differs", calls=tuple(calls))


def _compared(
    recorded: Call | None, target: str, request: bytes, parent: Trajectory
) -> tuple[Literal["same", "differs", "new"], tuple[Change, ...]]:
    if recorded is None:
        return "new", ()
    found = tuple(changes(parent.asked(recorded), request))
    same = not found and _target(recorded) == target
    return "same" if same else "differs", found


def _target(call: Call) -> str:
    return f"{call.what} {call.instance}"


def _ending(plan: Plan, fork: Trajectory, result: RolloutResult, found: Whatif) -> Whatif:
    was = plan.parent.outcome
    response = fork.whole_response(result)
    differences = tuple(changes(plan.parent.whole_response(was), response)) if isinstance(was, RolloutResult) else ()
    same = isinstance(was, RolloutResult) and not differences and was.reward == result.reward
    return msgspec.structs.replace(
        found, verdict="same" if same else "differs", reward=result.reward, changes=differences
    )
