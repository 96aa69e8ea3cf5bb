"""Which event of a rollout is meant by `--at`?

Called by `fork`, `whatif`, `why` and `step`. Pure. A point is named by an event's number (`12` or, as `show` prints it,
`#12`), by a call's key, by `turn:K` (the K-th model call of one agent, from 1), or by `end`.
"""

from typing import Final

import msgspec

from components.durable.history import SUB_CALL
from contracts.ids import ROOT_CALL
from replay.errors import Misused
from replay.names import one_of, shown
from replay.trajectory import Call, Trajectory

END: Final = "end"
_TURN: Final = "turn:"


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A place in a rollout's history: before an event."""

    seq: int | None
    """Number of the event; 0 for the rollout's request, None after the last one."""
    call: Call | None = None
    """The call that the event belongs to."""


def point(trajectory: Trajectory, at: str, prefix: str = "") -> Point:
    """What `at` means in this rollout; keys and turns are those of the agent whose calls have this `prefix`.

    Raises `Misused` or `UnknownName`.
    """
    if at == END:
        return Point(seq=None)
    if at in ("0", ROOT_CALL):
        return Point(seq=0)
    if (number := at.removeprefix("#")).isdigit():
        return _numbered(trajectory, int(number))
    if at.startswith(_TURN):
        return _before(_turn(trajectory, at.removeprefix(_TURN), prefix))
    for key in (prefix + at, at):
        if key in trajectory.calls:
            return _before(trajectory.calls[key])
    key = one_of(list(trajectory.calls), at, "call")
    return _before(trajectory.calls[key])


def turns(trajectory: Trajectory, prefix: str = "") -> list[Call]:
    """The model calls of one agent, the rollout's own by default, in the order in which they were asked."""
    calls = [call for call in trajectory.calls.values() if call.what == "model" and call.key.startswith(prefix)]
    return [call for call in calls if SUB_CALL not in call.key[len(prefix) :]]


def _before(call: Call) -> Point:
    return Point(seq=call.requested.seq, call=call)


def _numbered(trajectory: Trajectory, number: int) -> Point:
    if number == trajectory.requested.seq:
        return Point(seq=0)
    if trajectory.ended is not None and number == trajectory.ended.seq:
        return Point(seq=None)
    for call in trajectory.calls.values():
        if number == call.requested.seq or (call.replied is not None and number == call.replied.seq):
            return Point(seq=number, call=call)
    first, last = trajectory.events[0].seq, trajectory.events[-1].seq
    raise Misused(
        f"event {number} is no request or reply of {trajectory.rollout_id}, whose events are between {first} and "
        f"{last}: `replay show` prints their numbers; or name a call by its key, `{_TURN}K`, or `{END}`"
    )


def _turn(trajectory: Trajectory, number: str, prefix: str) -> Call:
    known = turns(trajectory, prefix)
    if number.isdigit() and 1 <= int(number) <= len(known):
        return known[int(number) - 1]
    told = {0: "no turn of its own", 1: "the turn 1 only"}.get(len(known), f"the turns 1 to {len(known)}")
    made = [call for call in trajectory.calls.values() if call.what == "model" and call.key.startswith(prefix)]
    called = [call.key for call in made if call not in known]
    more = f"; agents that it called made model calls too, which their keys name: {shown(called)}" if called else ""
    raise Misused(f"there is no turn {number!r}: {trajectory.rollout_id} has {told}{more}")
