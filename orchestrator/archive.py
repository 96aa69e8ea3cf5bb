"""How does a run leave a log for a file that `replay --file` reads?

One line an event, its bytes as they stand in the log and in the log's order; data that events refer to stands before
its first use on a line of its own. What the deployment said of itself and of its policies goes along, and so do the
records of the run's feeds: a trainer finds in an import what it found in the log. Called by `jetgym log archive`.
"""

import gzip
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from bus import Bus
from bus.catalog import UNREADABLE, Entry, entries
from contracts.ids import ROOT_CALL
from orchestrator.errors import UsageError

_DEPLOYMENT = ("deployment.resolved", "deployment.worker", "policy.updated")


class Archived(msgspec.Struct, frozen=True, kw_only=True):
    """What was written."""

    run_id: str
    rollouts: int
    open: int
    """Rollouts that have not ended: they go on in the log, not in the file."""
    events: int
    blobs: int
    unreadable: int
    """Bytes that are no event: they stay in the log, and in the dead letters that are in the file."""


class BlobLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The line of data that events refer to."""

    blob: str
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    base64: bytes | msgspec.UnsetType = msgspec.UNSET
    """In place of `data`, where that is JSON over several lines: on one line it would have another digest."""


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A file that is there once it is whole, compressed where its name ends in `.gz`.

    Raises `UsageError` where it is there already.
    """
    if path.exists():
        raise UsageError(f"{path} exists already: name another file with --output")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as file:
            if path.suffix == ".gz":
                with gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as packed:
                    yield cast("BinaryIO", packed)
            else:
                yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


async def archive(bus: Bus, run: str, file: BinaryIO) -> Archived:
    """Writes a run into a file; raises `BusError`, `OSError`."""
    writer = _Writer(bus, run, file)
    for partition in range(bus.config.partitions):
        async with aclosing(entries(bus, partition)) as found:
            async for entry in found:
                await writer.add(entry)
    return Archived(
        run_id=run,
        rollouts=writer.rollouts,
        open=len(writer.open),
        events=writer.events,
        blobs=len(writer.blobs),
        unreadable=writer.unreadable,
    )


class _Writer:
    def __init__(self, bus: Bus, run: str, file: BinaryIO) -> None:
        self._bus, self._run, self._file = bus, run, file
        self.blobs: set[str] = set()
        self.open: set[str] = set()
        self.rollouts = self.events = self.unreadable = 0

    async def add(self, entry: Entry) -> None:
        mine = entry.run == self._run or entry.subject == self._bus.subjects.deployment("run", self._run)
        if not mine and entry.type not in _DEPLOYMENT:
            return
        if entry.type == UNREADABLE:
            self.unreadable += 1
            return
        for reference in entry.refs:
            if reference not in self.blobs:
                self.blobs.add(reference)
                data = await self._bus.fetch_blob(reference)
                whole = BlobLine(blob=reference, data=msgspec.Raw(data))
                self._line(msgspec.json.encode(BlobLine(blob=reference, base64=data) if b"\n" in data else whole))
        self._line(entry.raw)
        self.events += 1
        if entry.heading.form == "ended":
            self.open.discard(entry.heading.rollout)
        elif entry.heading.form == "request" and entry.heading.key == ROOT_CALL:
            self.rollouts += 1
            self.open.add(entry.heading.rollout)

    def _line(self, raw: bytes) -> None:
        self._file.write(raw.replace(b"\n", b" ") + b"\n")  # between the tokens of JSON, where alone one can stand
