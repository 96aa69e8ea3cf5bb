"""Is there room in the log, what if there is none, and how is more made?

Called by whoever shows the progress of a run, by commands that write some events and cannot wait for ever, and by
`jetgym log resize`. The server tells only who publishes that a stream is full; `LogRoom` asks the streams for their
size, and a stream that has no room for one more event of the largest size and takes nothing counts as full. It never
publishes.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from bus.bus import Bus
from bus.connection import Connection
from bus.errors import LogFull
from bus.topology import ENVELOPE_BYTES, resize, stream_info

T = TypeVar("T")

PATIENCE_S: Final = 3.0
"""So long a command waits for room."""
_LOOK_S: Final = 0.2


async def unless_full(bus: Bus, work: Coroutine[Any, Any, T]) -> T:
    """Does `work`, which publishes; raises `LogFull` when the log has had no room for it for a while.

    What is not in the log by then never gets there, once the bus is closed.
    """
    loop = asyncio.get_running_loop()
    working, full_since = asyncio.ensure_future(work), None
    try:
        while not working.done():
            await asyncio.wait([working], timeout=_LOOK_S)
            full_since = (full_since or loop.time()) if bus.log_full else None
            if full_since is not None and not working.done() and loop.time() - full_since >= PATIENCE_S:
                raise LogFull(
                    "the log is full, so this could not be written: take runs that are over out of it (`jetgym log "
                    "prune`), or raise its bound (`jetgym log resize`), then say it again"
                )
        return working.result()
    finally:
        working.cancel()


async def largest_stream(bus: Bus) -> int:
    """The bytes of the largest stream of the log, as its bound counts them; raises `BusError`."""
    infos = [await stream_info(bus._connection, name) for name in _streams(bus)]  # noqa: SLF001 - the same package
    return max(info.state.bytes for info in infos)


async def set_bound(bus: Bus, max_bytes: int) -> None:
    """Gives each stream of the log this bound in bytes, -1 for none; who waits for room goes on. Raises `BusError`."""
    for name in _streams(bus):
        await resize(bus._connection, name, max_bytes)  # noqa: SLF001 - a part of the same package


def _streams(bus: Bus) -> list[str]:
    return [*map(bus.subjects.stream, range(bus.config.partitions)), bus.subjects.blob_stream]


@dataclass(frozen=True, slots=True)
class FullStream:
    """A stream of the log that refuses events, in bytes."""

    name: str
    used: int
    limit: int


@dataclass(slots=True)
class LogRoom:
    """Looks at the streams of one log, again and again."""

    bus: Bus
    _seen: dict[str, int] = field(default_factory=dict)
    """The last sequence of each stream at the look before."""

    async def full(self) -> FullStream | None:
        """A stream that is full and has taken nothing since the look before; raises `BusError`."""
        connection: Connection = self.bus._connection  # noqa: SLF001 - a part of the same package
        largest = self.bus.config.inline_limit + ENVELOPE_BYTES
        found = None
        for name in _streams(self.bus):
            info = await stream_info(connection, name)
            limit, last = int(info.config.get("max_bytes", -1)), info.state.last_seq
            if 0 < limit < info.state.bytes + largest and self._seen.get(name) == last:
                found = found or FullStream(name, info.state.bytes, limit)
            self._seen[name] = last
        return found
