"""How does an event get into the log: what of it stands elsewhere, and what if its subject is taken?

Called by `bus`. Data over the inline limit is stored before the event, as a blob that it refers to. What the server
would end the connection for is refused here. It makes no event, and knows nothing of what events mean.
"""

import asyncio
from typing import Final

import msgspec

from bus.blobs import Blobs
from bus.connection import Connection
from bus.deadletter import DeadLetter
from bus.direct import Stored
from bus.errors import Conflict, EventIdReused, PayloadTooLarge, Unreadable
from bus.history import event_in
from bus.publish import Publisher
from bus.subjects import Subjects, check_subject
from bus.topology import LogConfig
from contracts.codec import encode
from contracts.errors import InvalidName
from contracts.events import NOTHING, Event, Recorded

HEADER_ROOM: Final = 1024


class Writing:
    """The writing end of one process's place on a log. Its methods raise as those of `Bus` do."""

    def __init__(self, connection: Connection, publisher: Publisher, subjects: Subjects, config: LogConfig) -> None:
        self._connection, self._publisher, self._subjects, self._config = connection, publisher, subjects, config
        self.blobs = Blobs(connection, publisher, subjects, replicated=config.replicas > 1)

    async def post(self, event: Event) -> asyncio.Future[int]:
        """See `Bus.post`."""
        subject = _subject_of(event)
        if self._is_blob(event):
            event = await self._check_in(event)
        return await self._publisher.post(subject, self._subjects.stream_of(event.subject), self._raw(event), _judge)

    def post_at_once(self, event: Event) -> asyncio.Future[int] | None:
        """See `Bus.post_at_once`."""
        if self._is_blob(event) or not self._publisher.has_room:
            return None
        subject = _subject_of(event)
        return self._publisher.post_at_once(subject, self._subjects.stream_of(event.subject), self._raw(event), _judge)

    async def copy(self, recorded: Recorded) -> int:
        """See `Bus.copy`."""
        subject, raw = _subject_of(recorded.event), recorded.raw
        self._check_size(recorded.event, raw)
        stream = self._subjects.stream_of(recorded.event.subject)
        return await (await self._publisher.post(subject, stream, raw, _judge))

    def _is_blob(self, event: Event) -> bool:
        large = memoryview(event.data).nbytes + (memoryview(event.capture).nbytes if event.captured else 0)
        return large > self._config.inline_limit

    def _raw(self, event: Event) -> bytes:
        raw = encode(event)
        self._check_size(event, raw)
        return raw

    def _check_size(self, event: Event, raw: bytes) -> None:
        if len(raw) + HEADER_ROOM > self._connection.max_payload:  # the server would end the connection
            raise PayloadTooLarge(f"event {event.type} {event.subject}", len(raw), self._connection.max_payload)

    async def _check_in(self, event: Event) -> Event:
        """The event with references in place of what is large: of its data, its capture, or both."""
        for name, reference in (("data", "dataref"), ("capture", "captureref")):
            large = bytes(getattr(event, name))
            if len(large) > self._config.blob_limit:
                raise PayloadTooLarge(f"{name} of {event.type} {event.subject}", len(large), self._config.blob_limit)
            if len(large) > self._config.inline_limit // 2:  # so that both fit
                event = msgspec.structs.replace(event, **{name: NOTHING, reference: await self.blobs.store(large)})
        return event


def _judge(raw: bytes, stored: Stored) -> None:
    """Ours, or whose?"""
    if stored.data == raw:
        return
    holder = event_in(stored)
    if isinstance(holder, DeadLetter):
        raise Unreadable(holder)
    if msgspec.json.decode(raw, type=_Identity).id == holder.event.id:
        raise EventIdReused(holder)
    raise Conflict(holder)


class _Identity(msgspec.Struct):
    id: str


def _subject_of(event: Event) -> bytes:
    """The event's subject; raises `InvalidName` for an event that would not be found where it belongs."""
    if "." in event.rolloutid or "." in event.callkey:
        raise InvalidName(f"rollout ID {event.rolloutid!r} or call key {event.callkey!r} has a dot in it")
    return check_subject(event.subject)
