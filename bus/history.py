"""All events of one rollout, in the log's order.

Called by workers on a redelivery or an adoption, and by replay. One event a subject makes "the last of each subject"
the whole history, which one request answers. What cannot be decoded is left out and told: it is in a dead letter.
"""

from collections.abc import AsyncGenerator

import structlog

from bus.connection import Connection
from bus.direct import Stored, TooManySubjects, last, pages_of_last
from bus.scan import all_of, read
from bus.subjects import Subjects
from contracts.codec import decode
from contracts.errors import InvalidEvent
from contracts.events import Recorded

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
    return None if stored is None else recorded_of(stored)


def recorded_of(stored: Stored) -> Recorded | None:
    """The event in a stored message; None, and a warning, if there is none in it."""
    try:
        event = decode(stored.data)
    except InvalidEvent as error:
        _log.warning("unreadable_event", subject=stored.subject, seq=stored.seq, error=str(error))
        return None
    return Recorded(seq=stored.seq, subject=stored.subject, event=event, raw=stored.data)
