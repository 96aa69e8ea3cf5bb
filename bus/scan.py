"""Reading a whole log or a part of it, in order.

Called by rebuild and replay, in bounded memory (`read`), and by `history` and `blobs` for the few messages that
belong together (`all_of`). Reading does not disturb the log: no acks, nothing
durable.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from bus.connection import Connection
from bus.direct import Stored, TooManySubjects, last_of_each
from bus.errors import BusError
from bus.ordered import OrderedReader
from bus.topology import stream_info

_HIGH: Final = 4_096
_LOW: Final = 512
_HIGH_BYTES: Final = 8 * 1024 * 1024
_LOW_BYTES: Final = _HIGH_BYTES // 8


async def all_of(connection: Connection, stream: str, filters: Sequence[str]) -> list[Stored]:
    """The message of each subject that a filter matches, by sequence: in one request, or by reading if too many."""
    try:
        return await last_of_each(connection, stream, filters)
    except TooManySubjects:
        return [message async for message in read(connection, stream, filters, start=1, follow=False)]


async def read(
    connection: Connection, stream: str, filters: Sequence[str], *, start: int, follow: bool, sizes: bool = False
) -> AsyncGenerator[Stored, None]:
    """Messages of one stream from sequence `start` on: to the present end, or for ever with `follow`.

    With `sizes` the data of each is only the number of its bytes, in decimal: the server sends no payloads.
    """
    end = (await stream_info(connection, stream)).state.last_seq
    if not follow and end < start:
        return
    arrived = _Arrived()
    reader = arrived.reader = OrderedReader(connection, stream, filters, arrived.add, start=start, sizes=sizes)
    connection.on_lost_for_good.append(arrived.lose)
    try:
        await reader.start()
        if not follow and reader.pending == 0:
            return
        while True:
            stored, behind = await arrived.take()
            if stored.seq <= end or follow:
                yield stored
            if not follow and (behind == 0 or stored.seq >= end):
                return
    finally:
        await reader.stop()
        connection.on_lost_for_good.remove(arrived.lose)


class _Arrived:
    """What came and was not taken yet; holds the reader back when that is much."""

    reader: OrderedReader

    def __init__(self) -> None:
        self._messages: deque[tuple[Stored, int]] = deque()
        self._bytes = 0
        self._held_back = False
        self._waiting: asyncio.Future[None] | None = None
        self._lost: BusError | None = None

    def add(self, seq: int, subject: bytes, data: bytes, behind: int) -> None:
        self._messages.append((Stored(seq, subject.decode(errors="replace"), data), behind))
        self._bytes += len(data)
        if len(self._messages) > _HIGH or self._bytes > _HIGH_BYTES:
            self._held_back = True
            self.reader.pause()
        self._wake()

    def lose(self, error: BusError) -> None:
        self._lost = error
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def take(self) -> tuple[Stored, int]:
        while not self._messages:
            if self._lost is not None:
                raise self._lost
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        taken = self._messages.popleft()
        self._bytes -= len(taken[0].data)
        if self._held_back and len(self._messages) < _LOW and self._bytes < _LOW_BYTES:
            self._held_back = False
            self.reader.resume()
        return taken
