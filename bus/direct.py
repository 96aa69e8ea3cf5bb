"""Reading single subjects of a stream without a consumer (`DIRECT.GET`).

Called by `publish` (who holds this subject?) and by `scan` for histories and blobs. It returns stored bytes and never
decodes them.
With replicas any of them may answer, so that what was stored a moment ago may not be there yet.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from operator import attrgetter
from typing import Final

import msgspec

from bus.connection import NO_RESPONDERS, Connection, Message, field_of
from bus.errors import BusError, Unreachable

_NOT_FOUND: Final = 404
_TOO_MANY: Final = 413
_END_OF_BATCH: Final = 204
_ATTEMPTS: Final = 4
_PAGE_BYTES: Final = 8 * 1024 * 1024
_PAUSE_S: Final = 0.1


class TooManySubjects(BusError):
    """The filters match more subjects than the server answers at once (1,024)."""


class Stored(msgspec.Struct, frozen=True):
    """One stored message."""

    seq: int
    subject: str
    data: bytes


async def last(connection: Connection, stream: str, subject: str) -> Stored | None:
    """The newest message on `subject`, which may hold wildcards; None if there is none."""
    found, _ = await _ask(connection, stream, {"last_by_subj": subject})
    return found[0] if found else None


async def first_from(connection: Connection, stream: str, subject: str, start: int) -> Stored | None:
    """The oldest message on `subject`, which may hold wildcards, from sequence `start` on; None if there is none.

    The server looks through what lies between: for an operator's questions, not for work.
    """
    found, _ = await _ask(connection, stream, {"seq": start, "next_by_subj": subject})
    return found[0] if found else None


async def last_of_each(connection: Connection, stream: str, filters: Sequence[str]) -> list[Stored]:
    """The newest message of each subject that a filter matches, by sequence; raises `TooManySubjects`."""
    return [message async for page in pages_of_last(connection, stream, filters) for message in page]


async def pages_of_last(
    connection: Connection, stream: str, filters: Sequence[str]
) -> AsyncGenerator[list[Stored], None]:
    """`last_of_each` in pages of some megabytes; raises `TooManySubjects` before the first."""
    question: dict[str, object] = {"multi_last": list(filters), "max_bytes": _PAGE_BYTES}
    found, page = await _ask(connection, stream, question)
    yield sorted(found, key=attrgetter("seq"))
    while page is not None and page.pending:
        found, page = await _ask(connection, stream, {**question, "seq": page.last + 1, "up_to_seq": page.up_to})
        yield sorted(found, key=attrgetter("seq"))


class _Page(msgspec.Struct):
    """The end of a batch: how far it went."""

    pending: int
    last: int
    up_to: int


async def _ask(connection: Connection, stream: str, question: dict[str, object]) -> tuple[list[Stored], _Page | None]:
    """Asks, and asks again when an answer is cut off; raises `Unreachable` after some attempts."""
    payload = msgspec.json.encode(question)
    for attempt in range(_ATTEMPTS - 1):
        try:
            return await _ask_once(connection, stream, payload, batch="multi_last" in question)
        except Unreachable:
            await asyncio.sleep(_PAUSE_S * 2**attempt)
    return await _ask_once(connection, stream, payload, batch="multi_last" in question)


async def _ask_once(
    connection: Connection, stream: str, payload: bytes, *, batch: bool
) -> tuple[list[Stored], _Page | None]:
    found: list[Stored] = []
    end: list[Message] = []

    def on_answer(message: Message) -> bool:
        headers = message.headers
        if message.status:
            end.append(message)
        else:
            sequence, subject = field_of(headers, b"Nats-Sequence"), field_of(headers, b"Nats-Subject")
            found.append(Stored(int(sequence), subject.decode(), message.data))
        return bool(end) or not batch

    await connection.ask(f"$JS.API.DIRECT.GET.{stream}", payload, on_answer)
    status = end[0].status if end else 0
    if status == _TOO_MANY:
        raise TooManySubjects(f"more than 1,024 subjects of stream {stream} match")
    if status == NO_RESPONDERS:
        raise Unreachable(f"nobody serves stream {stream} at {connection.url}: does the log exist?")
    if status == _END_OF_BATCH:
        return found, _Page(
            *(
                int(field_of(end[0].headers, name))
                for name in (b"Nats-Num-Pending", b"Nats-Last-Sequence", b"Nats-UpTo-Sequence")
            )
        )
    if status not in (0, _NOT_FOUND):
        raise Unreachable(f"a read of stream {stream} was refused with status {status}")
    return found, None
