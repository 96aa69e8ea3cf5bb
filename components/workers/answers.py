"""The event that answers a request: a reply to a call, the firing of a timer, the end of a rollout.

Built by all workers, so that whatever answers is tied to what was asked in the same way.
"""

from msgspec import Raw

from bus import Bus
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
