"""Which run does each event of a log belong to, and what does it take?

One pass over a partition, in order: a rollout's request comes before all its other events and names the run. Called by
what tends the log: usage, archive, pruning. It reads every event, decodes only its head, and keeps a name a rollout.
"""

from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from bus.blobs import SCHEME
from bus.bus import Bus
from bus.headings import Heading, heading_of
from bus.scan import read
from contracts.ids import ROOT_CALL

UNREADABLE: Final = "unreadable"
"""Stands for the type of bytes that are no event."""


class _Head(msgspec.Struct):
    type: str = UNREADABLE
    time: datetime | None = None
    replyto: str = ""
    causationid: str = ""
    dataref: str = ""
    captureref: str = ""


class Entry(NamedTuple):
    """One event with what tells where it belongs."""

    seq: int
    size: int
    """Bytes of subject and event."""
    subject: str
    heading: Heading
    type: str
    time: datetime | None
    run: str
    """Empty for what belongs to no run, and for events of a rollout whose request is not in the log."""
    again: bool
    """A request that is a new attempt."""
    refs: tuple[str, ...]
    """The blobs that it refers to."""
    raw: bytes


_HEAD: Final = msgspec.json.Decoder(_Head)


async def entries(bus: Bus, partition: int) -> AsyncGenerator[Entry, None]:
    """All events of one partition up to its present end, in order; raises `BusError`."""
    runs: dict[str, str] = {}
    stream, wanted = bus.subjects.stream(partition), [f"{bus.config.namespace}.{partition}.>"]
    connection = bus._connection  # noqa: SLF001 - a part of the same package
    async with aclosing(read(connection, stream, wanted, start=1, follow=False)) as found:
        async for stored in found:
            try:
                head = _HEAD.decode(stored.data)
            except (msgspec.DecodeError, UnicodeDecodeError):
                head = _Head()
            heading = heading_of(stored.subject)
            root = heading.form == "request" and heading.key == ROOT_CALL
            if root:
                runs[heading.rollout] = _run_of(head.replyto)
            yield Entry(
                seq=stored.seq,
                size=len(stored.subject) + len(stored.data),
                subject=stored.subject,
                heading=heading,
                type=head.type,
                time=head.time,
                run=heading.run or runs.get(heading.rollout, ""),
                again=root and bool(head.causationid),
                refs=tuple(filter(None, (head.dataref, head.captureref))),
                raw=stored.data,
            )


class StoredBlob:
    """One blob, without the others that are parts of it."""

    __slots__ = ("parts", "places", "size")

    def __init__(self) -> None:
        self.size = 0
        self.places: list[int] = []
        """Sequences of its pieces."""
        self.parts: set[str] = set()
        """References of the blobs that are parts of it."""


async def stored_blobs(bus: Bus) -> dict[str, StoredBlob]:
    """All blobs by reference; raises `BusError`."""
    found: defaultdict[str, StoredBlob] = defaultdict(StoredBlob)
    stream, wanted = bus.subjects.blob_stream, [f"{bus.config.namespace}.blob.>"]
    connection = bus._connection  # noqa: SLF001 - a part of the same package
    async with aclosing(read(connection, stream, wanted, start=1, follow=False, sizes=True)) as pieces:
        async for piece in pieces:
            digest, _, _, *part = piece.subject.split(".")[2:]
            blob = found[SCHEME + digest]
            blob.size += int(piece.data)
            blob.places.append(piece.seq)
            blob.parts.update(SCHEME + each for each in part)
    return dict(found)


def _run_of(replyto: str) -> str:
    """The run that a rollout's request belongs to: its end stands in the run's row."""
    heading = heading_of(replyto)
    return heading.run if heading.form == "ended" else ""
