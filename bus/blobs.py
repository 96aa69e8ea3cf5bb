"""The claim check: data too large for an event, stored once under its SHA-256 and referred to from the event.

Called by `Bus.publish` and `Bus.fetch_data`. Parts of it that other data may hold too are stored as blobs of their own,
so that an image is stored once, whatever stands around it in the requests of a thousand rollouts. A blob is a row of
pieces whose subjects hold the digest of the whole; a piece is the name of the part that stands before it, if any, and
some bytes. Pieces are published like events: first writer wins, and a store that was cut off is completed by the next
one. The blob is in the log before the event that refers to it. Blobs are never aged out.
"""

import asyncio
from collections.abc import Collection, Iterator
from hashlib import sha256
from typing import Final, NamedTuple

from bus.connection import Connection
from bus.direct import Stored
from bus.errors import BlobLost
from bus.parts import long_strings
from bus.publish import Publisher
from bus.scan import all_of
from bus.subjects import Subjects

CHUNK_BYTES: Final = 512 * 1024
SCHEME: Final = "sha256:"

_KNOWN: Final = 10_000
_LAG_S: Final = 5.0
"""So long a replica may lag behind."""
_LOOK_AGAIN_S: Final = 0.1
_AT_ONCE: Final = 256
"""Parts that are asked for in one request, which the server answers for 1,024 pieces at most."""


class _Piece(NamedTuple):
    part: str
    """Digest of the blob that stands before `own`; empty for none."""
    own: bytes | memoryview


class Blobs:
    """The blobs of one deployment."""

    def __init__(
        self, connection: Connection, publisher: Publisher, subjects: Subjects, *, replicated: bool = False
    ) -> None:
        """With `replicated`, what was stored a moment ago may be read from a server that does not have it yet."""
        self._connection, self._lag_s = connection, _LAG_S if replicated else 0.0
        self._publisher = publisher
        self._subjects = subjects
        self._known: dict[str, None] = {}
        self._chunk = min(CHUNK_BYTES, connection.max_payload // 2)

    async def store(self, data: bytes) -> str:
        """Stores `data` if it is not there yet; returns its reference when it can be read."""
        digest = sha256(data).hexdigest()
        if digest not in self._known:
            whole, begin, part = memoryview(data), 0, ""
            row: list[_Piece] = []
            acks: list[asyncio.Future[int]] = []
            new = {digest}
            for start, end in long_strings(data):
                row += self._pieces(part, whole[begin:start])
                part, begin = sha256(whole[start:end]).hexdigest(), end
                if part not in self._known and part not in new:
                    new.add(part)
                    acks += await self._post(part, list(self._pieces("", whole[start:end])))
            row += self._pieces(part, whole[begin:])
            acks += await self._post(digest, row)
            await asyncio.gather(*acks)
            for each in new:
                if len(self._known) >= _KNOWN:
                    del self._known[next(iter(self._known))]
                self._known[each] = None
        return SCHEME + digest

    def _pieces(self, part: str, own: memoryview) -> Iterator[_Piece]:
        for start in range(0, len(own), self._chunk):
            yield _Piece("" if start else part, own[start : start + self._chunk])

    async def _post(self, digest: str, row: list[_Piece]) -> list[asyncio.Future[int]]:
        layout, stream = _layout(row), self._subjects.blob_stream
        return [
            await self._publisher.post(
                self._subjects.blob(digest, layout, number, part).encode(), stream, bytes(own), _same
            )
            for number, (part, own) in enumerate(row)
        ]

    async def fetch(self, dataref: str) -> bytes:
        """The data of a reference; raises `BlobLost` if it is not whole."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._lag_s
        while (data := await self._whole(dataref.removeprefix(SCHEME))) is None:
            if loop.time() >= end:
                raise BlobLost(f"blob {dataref} is not whole in stream {self._subjects.blob_stream}: was it purged?")
            await asyncio.sleep(_LOOK_AGAIN_S)
        return data

    async def _whole(self, digest: str) -> bytes | None:
        for row in (await self._rows([digest])).get(digest, ()):
            found = await self._rows({piece.part for piece in row if piece.part})
            parts = {
                part: plain for part, rows in found.items() for plain in rows if not any(each.part for each in plain)
            }
            data = b"".join(each.own for piece in row for each in (*parts.get(piece.part, ()), piece))
            if sha256(data).hexdigest() == digest:
                return data
        return None

    async def _rows(self, digests: Collection[str]) -> dict[str, list[list[_Piece]]]:
        """The rows of blobs that are whole; several, where a blob was stored in pieces of other sizes before."""
        wanted = [self._subjects.blob_of(digest) for digest in digests]
        found: dict[tuple[str, str], dict[int, _Piece]] = {}
        for start in range(0, len(wanted), _AT_ONCE):
            asked = wanted[start : start + _AT_ONCE]
            for stored in await all_of(self._connection, self._subjects.blob_stream, asked):
                digest, layout, number, *part = stored.subject.split(".")[2:]
                found.setdefault((digest, layout), {})[int(number)] = _Piece("".join(part), stored.data)
        rows: dict[str, list[list[_Piece]]] = {}
        for (digest, layout), row in found.items():
            if len(row) == int(layout.partition("-")[0]):
                rows.setdefault(digest, []).append([row[number] for number in range(len(row))])
        return rows


def _layout(row: list[_Piece]) -> str:
    """How many pieces; where parts are among them also which, since other versions may see other parts."""
    if not any(piece.part for piece in row):
        return str(len(row))
    told = " ".join(f"{piece.part}{len(piece.own)}" for piece in row)
    return f"{len(row)}-{sha256(told.encode()).hexdigest()[:16]}"


def _same(raw: bytes, stored: Stored) -> None:
    if raw != stored.data:
        raise BlobLost(f"{stored.subject} holds other bytes than its digest says: the stream was tampered with")
