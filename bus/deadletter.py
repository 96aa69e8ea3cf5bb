"""What becomes of a message that cannot be processed: a dead letter with the reason and the original bytes.

Called by all that read the log: `pool`, `replies`, `history`. A letter's subject is derived from the message's
sequence, so the same message has one letter however often it is delivered. What an operator decides about it is an
event beside it (`letters`).
"""

import base64
from typing import Final, Literal, get_args

import msgspec

from bus.subjects import may_hold
from contracts.codec import decode
from contracts.errors import InvalidEvent, NewerVersion
from contracts.events import Event, Outcome

Reason = Literal["undecodable", "newer_version", "unknown_type", "subject_mismatch", "exhausted"]
"""Why it is dead: no event; written by a newer major version; a type that is not served, or read, under this subject;
body and subject disagree; delivered too often without an end."""

DEAD_LETTER = "dead.lettered"
"""The type of a dead letter's event."""

SETTLED = "dead.settled"
"""The type of the event that says what was decided about a dead letter."""

Decision = Literal["requeued", "dropped"]

_ENDED: Final = ".rollout.ended."
_ENDS: Final = frozenset(get_args(Outcome))


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message and why it is dead."""

    reason: Reason
    message: str
    """For a human."""
    subject: str
    """The subject that it came under. Only this says which rollout and call it belonged to."""
    seq: int
    num_delivered: int
    raw: bytes
    event: Event | None
    """Decoded, where that was possible and it is of this subject."""


class DeadLetterData(msgspec.Struct, frozen=True, kw_only=True):
    """`dead.lettered`: the data of a dead letter's event."""

    reason: Reason
    message: str
    subject: str
    seq: int
    num_delivered: int
    raw_base64: str

    @property
    def raw(self) -> bytes:
        """The original bytes."""
        return base64.b64decode(self.raw_base64)


class Settlement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`dead.settled`: what an operator decided about a dead letter."""

    decision: Decision
    """`requeued`: its rollout is asked for again. `dropped`: nothing more is to be done."""
    rollout: str = ""
    """Of the new attempt."""


def event_or_letter(raw: bytes, subject: str, seq: int, num_delivered: int = 1) -> Event | DeadLetter:
    """The event of this subject in a stored message; if there is none that this version knows, its dead letter."""
    reason: Reason
    try:
        event = decode(raw)
    except InvalidEvent as error:
        reason, told = "newer_version" if isinstance(error, NewerVersion) else "undecodable", str(error)
    else:
        if not may_hold(subject, event):
            reason = "subject_mismatch"
        elif _ENDED in subject and event.type not in _ENDS:
            reason = "unknown_type"
        else:
            return event
        told = (
            f"event {event.id!r} of type {event.type!r} names subject {event.subject!r}, rollout {event.rolloutid!r} "
            f"and call {event.callkey!r}"
        )
    return DeadLetter(
        reason=reason, message=told, subject=subject, seq=seq, num_delivered=num_delivered, raw=raw, event=None
    )


def letter_data(letter: DeadLetter) -> bytes:
    """The letter as an event's data."""
    return msgspec.json.encode(
        DeadLetterData(
            reason=letter.reason,
            message=letter.message,
            subject=letter.subject,
            seq=letter.seq,
            num_delivered=letter.num_delivered,
            raw_base64=base64.b64encode(letter.raw).decode(),
        )
    )
