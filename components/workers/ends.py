"""How does the end of a rollout get into the log?

The first end stands: whoever comes later leaves it. One that cannot be read is buried, and stands as a failure. Called
by the agent worker, for the rollouts that it holds and for requests that it cannot process, and by who asks for
rollouts, for those that nobody can be asked for.
"""

import structlog

from bus import Bus, Conflict, DeadLetter, PayloadTooLarge
from bus.errors import Unreadable
from components.workers.answers import answer_to, bury_holder
from components.workers.ending import failure
from contracts.events import CallError, Event
from contracts.rollouts import RolloutStats


async def write_end(bus: Bus, request: Event, what: str, data: bytes, stats: RolloutStats | None) -> None:
    """Stores an event of type `what` as the end; where it is too large, that the rollout failed by that."""
    try:
        await _store(bus, request, what, data)
    except PayloadTooLarge as refused:
        error = CallError(kind="poison", message=f"the result of the rollout: {refused}")
        await _store(bus, request, *failure(request, error, stats))


async def _store(bus: Bus, request: Event, what: str, data: bytes) -> None:
    try:
        await bus.publish(answer_to(bus, request, what, data))
    except Conflict as conflict:
        source = conflict.stored.event.source
        structlog.get_logger().warning("rollout.ended_elsewhere", rollout=request.rolloutid, by=source)
    except Unreadable as held:
        await bury_holder(bus, request, held.letter)


async def end_dead(bus: Bus, letter: DeadLetter) -> None:
    """The rollout of a request that cannot be processed fails, so that nothing waits for it."""
    if letter.event is not None:
        error = CallError(kind="poison", message=letter.message, details={"reason": letter.reason})
        await write_end(bus, letter.event, *failure(letter.event, error, None), None)


async def end_unasked(bus: Bus, request: Event, held: Unreadable) -> None:
    """A rollout fails whose request's place holds what cannot be read: no worker ever takes it."""
    error = CallError(kind="poison", message=str(held), details={"reason": held.letter.reason})
    await write_end(bus, request, *failure(request, error, None), None)
