"""What can be done about a dead letter, and what not?

Called by `jetgym dead`. Requeueing one asks for its rollout again, as a new attempt; dropping it only says that nothing
more is to be done. Either is written into the log, and the first decision stands.
"""

import base64
from datetime import datetime

import msgspec

from bus import Bus
from bus.deadletter import Settlement
from bus.letters import Letter, decision, settle
from contracts.codec import decode
from contracts.errors import InvalidEvent
from contracts.ids import RolloutId
from orchestrator.attempts import NotAgain, ask_once_more


class LetterDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A dead letter, for a reader."""

    id: str
    time: datetime
    pool: str
    kind: str
    reason: str
    message: str
    rollout: str
    """Empty where it belonged to none."""
    subject: str
    seq: int
    """Of the message, in its partition."""
    num_delivered: int
    decision: str = ""
    decided: datetime | None = None
    new_rollout: str = ""
    """What it was asked for again as."""
    event: msgspec.Raw | None = None
    """The original event, where it is one."""
    raw_base64: str = ""
    """The original bytes, where they are no event."""


def document(letter: Letter, *, whole: bool) -> LetterDocument:
    """What there is to say of a letter; `whole` with the original event."""
    data, pool = letter.data, letter.pool
    settled = letter.settled
    chosen = None if settled is None else decision(settled)
    event = _event(data.raw) if whole else None
    return LetterDocument(
        id=letter.id,
        time=letter.recorded.event.time,
        pool=pool.instance,
        kind=pool.kind,
        reason=data.reason,
        message=data.message,
        rollout=pool.rollout,
        subject=data.subject,
        seq=data.seq,
        num_delivered=data.num_delivered,
        decision="" if chosen is None else chosen.decision,
        decided=None if settled is None else settled.event.time,
        new_rollout="" if chosen is None else chosen.rollout,
        event=event,
        raw_base64=base64.b64encode(data.raw).decode() if whole and event is None else "",
    )


async def requeue(bus: Bus, letter: Letter) -> RolloutId:
    """Asks for the letter's rollout again; returns the ID of the attempt under way. Raises `NotAgain`, `BusError`.

    Where that was done already and failed too (each attempt may leave a letter), it is asked for after the latest one.
    """
    pool = letter.pool
    _refuse_if_settled(letter)
    if pool.kind == "feed":
        raise NotAgain("it is an end that the feed could not read: its rollout has ended, and is not asked for again")
    if pool.kind == "reply":
        raise NotAgain("it is a reply: it cannot be asked for again, and its rollout ends by its own deadline")
    if not pool.rollout:
        raise NotAgain("it belongs to no rollout")
    new = await ask_once_more(bus, pool.rollout, letter.recorded.event.id)
    other = await settle(bus, letter, Settlement(decision="requeued", rollout=new))
    if other is not None and decision(other).decision == "dropped":
        raise NotAgain(f"somebody dropped it meanwhile; {new} is asked for all the same")
    return new


async def drop(bus: Bus, letter: Letter) -> None:
    """Records that nothing more is to be done about it. Raises `NotAgain`, `BusError`."""
    _refuse_if_settled(letter)
    other = await settle(bus, letter, Settlement(decision="dropped"))
    if other is not None:
        raise NotAgain(f"somebody {decision(other).decision} it meanwhile")


def _refuse_if_settled(letter: Letter) -> None:
    if letter.settled is not None:
        chosen = decision(letter.settled)
        told = f", as {chosen.rollout}" if chosen.rollout else ""
        raise NotAgain(f"it was {chosen.decision} at {letter.settled.event.time:%Y-%m-%d %H:%M:%S} UTC{told}")


def _event(raw: bytes) -> msgspec.Raw | None:
    """The original event as it stood in the log, if it can be read."""
    try:
        decode(raw)
    except InvalidEvent:
        return None
    return msgspec.Raw(raw)
