"""The claim check: data too large for an event, stored once under its SHA-256 and referred to from the event.

Called by `Bus.publish` and `Bus.fetch_data`. A blob is a row of chunks whose subjects hold the digest, published like
events: first writer wins, so that the same image in a thousand rollouts is stored once, and a store that was cut off
is completed by the next one. The blob is in the log before the event that refers to it. Blobs are never aged out.
"""

import asyncio
import hashlib
from typing import Final

from bus.connection import Connection
from bus.direct import Stored
from bus.errors import BlobLost
from bus.publish import Publisher
from bus.scan import all_of
from bus.subjects import Subjects

CHUNK_BYTES: Final = 512 * 1024
SCHEME: Final = "sha256:"

_KNOWN: Final = 10_000


class Blobs:
    """The blobs of one deployment."""

    def __init__(self, connection: Connection, publisher: Publisher, subjects: Subjects) -> None:
        self._connection = connection
        self._publisher = publisher
        self._subjects = subjects
        self._known: dict[str, None] = {}
        self._chunk = min(CHUNK_BYTES, connection.max_payload // 2)

    async def store(self, data: bytes) -> str:
        """Stores `data` if it is not there yet; returns its reference when it can be read."""
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self._known:
            count = -(-len(data) // self._chunk)
            stream = self._subjects.blob_stream
            acks = [
                await self._publisher.post(
                    self._subjects.blob(digest, count, number).encode(),
                    stream,
                    data[number * self._chunk : (number + 1) * self._chunk],
                    _same,
                )
                for number in range(count)
            ]
            await asyncio.gather(*acks)
            if len(self._known) >= _KNOWN:
                del self._known[next(iter(self._known))]
            self._known[digest] = None
        return SCHEME + digest

    async def fetch(self, dataref: str) -> bytes:
        """The data of a reference; raises `BlobLost` if it is not whole."""
        digest = dataref.removeprefix(SCHEME)
        found = await all_of(
            self._connection, self._subjects.blob_stream, [f"{self._subjects.namespace}.blob.{digest}.*.*"]
        )
        rows: dict[int, dict[int, bytes]] = {}
        for stored in found:
            count, number = (int(token) for token in stored.subject.split(".")[-2:])
            rows.setdefault(count, {})[number] = stored.data
        for count, row in rows.items():  # several, if stores of other chunk sizes were cut off
            if len(row) == count:
                data = b"".join(row[number] for number in range(count))
                if hashlib.sha256(data).hexdigest() == digest:
                    return data
        raise BlobLost(f"blob {dataref} is not whole in stream {self._subjects.blob_stream}: was it purged?")


def _same(raw: bytes, stored: Stored) -> None:
    if raw != stored.data:
        raise BlobLost(f"{stored.subject} holds other bytes than its digest says: the stream was tampered with")
