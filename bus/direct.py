"""Reading single subjects of a stream without a consumer (`DIRECT.GET`).

Called by `publish` (who holds this subject?), `history` and `blobs`. It returns stored bytes and never decodes them.
With replicas any of them may answer, so that what was stored a moment ago may not be there yet.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from bus.connection import NO_RESPONDERS, Connection, field_of, status_of
from bus.errors import BusError, Unreachable

_NOT_FOUND: Final = 404
_TOO_MANY: Final = 413
_END_OF_BATCH: Final = 204
_TIMEOUT_S: Final = 5.0
_ATTEMPTS: Final = 4
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
    found = await many(connection, stream, {"last_by_subj": subject})
    return found[0] if found else None


async def last_of_each(connection: Connection, stream: str, filters: Sequence[str]) -> list[Stored]:
    """The newest message of each subject that a filter matches, by sequence; raises `TooManySubjects`."""
    return await many(connection, stream, {"multi_last": list(filters)})


async def many(connection: Connection, stream: str, question: dict[str, object]) -> list[Stored]:
    """Asks, and asks again when an answer is cut off; raises `Unreachable` after some attempts."""
    payload = msgspec.json.encode(question)
    for attempt in range(_ATTEMPTS):
        try:
            return await _ask(connection, stream, payload, batch="multi_last" in question)
        except Unreachable:
            if attempt == _ATTEMPTS - 1:
                raise
        await asyncio.sleep(_PAUSE_S * 2**attempt)
    raise AssertionError


async def _ask(connection: Connection, stream: str, payload: bytes, *, batch: bool) -> list[Stored]:
    done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    found: list[Stored] = []

    def on_answer(_subject: bytes, _reply: bytes, data: bytes, headers: bytes | None) -> None:
        status = status_of(headers)
        if status == 0:
            found.append(
                Stored(int(field_of(headers, b"Nats-Sequence")), field_of(headers, b"Nats-Subject").decode(), data)
            )
        if (status != 0 or not batch) and not done.done():
            done.set_result(status)

    token, reply = connection.expect(on_answer)
    try:
        connection.send(f"$JS.API.DIRECT.GET.{stream}".encode(), reply, payload)
        status = await asyncio.wait_for(done, _TIMEOUT_S)
    except TimeoutError:
        raise Unreachable(f"no answer to a read of stream {stream} in {_TIMEOUT_S:g} s") from None
    finally:
        connection.forget(token)
    if status == _TOO_MANY:
        raise TooManySubjects(f"more than 1,024 subjects of stream {stream} match")
    if status == NO_RESPONDERS:
        raise Unreachable(f"nobody serves stream {stream} at {connection.url}: does the log exist?")
    if status not in (0, _NOT_FOUND, _END_OF_BATCH):
        raise Unreachable(f"a read of stream {stream} was refused with status {status}")
    found.sort(key=lambda message: message.seq)
    return found
