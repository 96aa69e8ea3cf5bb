"""Is there room in the log? Seen from outside, by whoever publishes nothing himself and wonders why nothing goes on.

Called by whoever shows the progress of a run. The server tells only who publishes that a stream is full; here the
streams are asked for their size, and a stream that has no room for one more event of the largest size and takes nothing
counts as full. It never writes.
"""

from dataclasses import dataclass, field

from bus.bus import Bus
from bus.connection import Connection
from bus.topology import ENVELOPE_BYTES, stream_info


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
        subjects, largest = self.bus.subjects, self.bus.config.inline_limit + ENVELOPE_BYTES
        found = None
        for name in (*map(subjects.stream, range(subjects.partitions)), subjects.blob_stream):
            info = await stream_info(connection, name)
            limit, last = int(info.config.get("max_bytes", -1)), info.state.last_seq
            if 0 < limit < info.state.bytes + largest and self._seen.get(name) == last:
                found = found or FullStream(name, info.state.bytes, limit)
            self._seen[name] = last
        return found
