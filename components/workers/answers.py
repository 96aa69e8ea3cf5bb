"""The event that answers a request: a reply to a call, the firing of a timer, the end of a rollout.

Built by all workers, so that whatever answers is tied to what was asked in the same way. What they find in its place
and cannot read becomes a dead letter.
"""

from msgspec import Raw

from bus import Bus, DeadLetter
from contracts.events import NOTHING, SAID_ELSEWHERE, Event


def answer_to(
    bus: Bus,
    request: Event,
    what: str,
    data: bytes,
    *,
    elapsed: float = 0.0,
    capture: Raw = NOTHING,
    policy: tuple[int, int] | None = None,
    generated: int = SAID_ELSEWHERE,
) -> Event:
    """An event of type `what` for the request's `replyto`; `elapsed` is how many seconds it took to make."""
    return bus.event(
        type=what,
        subject=request.replyto,
        data=data,
        rolloutid=request.rolloutid,
        callkey=request.callkey,
        causationid=request.id,
        traceparent=request.traceparent,
        elapsed=round(elapsed, 6),
        capture=capture,
        policy=policy,
        generated=generated,
    )


async def bury_holder(bus: Bus, request: Event, letter: DeadLetter) -> None:
    """What holds the request's `replyto` and cannot be read is a dead letter; raises `BusError`.

    Of a reply it is the one that the worker which waits for it writes too.
    """
    form = letter.subject.split(".")[2]
    owner = letter.subject if form == "reply" else request.subject
    await bus.dead_letter(letter, *owner.split(".")[2:4])
