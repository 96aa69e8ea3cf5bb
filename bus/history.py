"""All events of one rollout, in the log's order.

Called by workers on a redelivery or an adoption, and by replay. One event a subject makes "the last of each subject"
the whole history, which one request answers. What is no event of its subject is left out and told: it is in a dead
letter.
"""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime

import msgspec
import structlog

from bus.connection import Connection
from bus.deadletter import DeadLetter, event_or_letter
from bus.direct import Stored, TooManySubjects, last, pages_of_last
from bus.scan import all_of, read
from bus.subjects import Subjects, rollout_of
from contracts.events import Event, Recorded
from contracts.ids import ROOT_CALL
from contracts.rollouts import RolloutFailure

_log = structlog.get_logger("bus.history")


async def history(connection: Connection, subjects: Subjects, rollout: str) -> list[Recorded]:
    """See `Bus.history`."""
    stream, filters = subjects.stream(subjects.partition(rollout)), subjects.history_of(rollout)
    stored = await all_of(connection, stream, filters)
    return [recorded for message in stored if (recorded := recorded_of(message)) is not None]


async def history_stream(connection: Connection, subjects: Subjects, rollout: str) -> AsyncGenerator[Recorded, None]:
    """See `Bus.history_stream`."""
    stream, filters = subjects.stream(subjects.partition(rollout)), subjects.history_of(rollout)
    try:
        async for page in pages_of_last(connection, stream, filters):
            for message in page:
                if (recorded := recorded_of(message)) is not None:
                    yield recorded
    except TooManySubjects:
        async for message in read(connection, stream, filters, start=1, follow=False):
            if (recorded := recorded_of(message)) is not None:
                yield recorded


async def last_event(connection: Connection, subjects: Subjects, subject: str) -> Recorded | None:
    """See `Bus.last`."""
    stored = await last(connection, subjects.stream_of(subject), subject)
    return None if stored is None else recorded_or_ended(stored)


def recorded_of(stored: Stored) -> Recorded | None:
    """The event in a stored message; None, and a warning, if there is none in it."""
    found = event_in(stored)
    return found if isinstance(found, Recorded) else None


def recorded_or_ended(stored: Stored) -> Recorded | None:
    """`recorded_of`; of an end that cannot be read, that its rollout failed by that: no other can be written."""
    found = event_in(stored)
    if isinstance(found, Recorded):
        return found
    match stored.subject.split("."):
        case [_, _, "rollout", "ended", _, _] if rollout := rollout_of(stored.subject):
            return Recorded(seq=stored.seq, subject=stored.subject, event=_failed(rollout, found), raw=stored.data)
    return None


def event_in(stored: Stored) -> Recorded | DeadLetter:
    """The event in a stored message; if there is none in it, a warning, and the letter that it becomes."""
    found = event_or_letter(stored.data, stored.subject, stored.seq)
    if isinstance(found, DeadLetter):
        _log.warning("unreadable_event", subject=stored.subject, seq=stored.seq, error=found.message)
        return found
    return Recorded(seq=stored.seq, subject=stored.subject, event=found, raw=stored.data)


def _failed(rollout: str, letter: DeadLetter) -> Event:
    message = f"its end cannot be read: {letter.message}"
    failure = RolloutFailure(kind="poison", message=message, details={"reason": letter.reason})
    return Event(
        id=f"unreadable-{letter.seq}",
        source="log",
        type="rollout.failed",
        time=datetime.now(UTC),
        subject=letter.subject,
        rolloutid=rollout,
        callkey=ROOT_CALL,
        data=msgspec.Raw(msgspec.json.encode(failure)),
    )
