"""What takes how much of a log: event types, runs, blobs, the largest rollouts?

Reads the whole log once, in order, and keeps some numbers a rollout and a name a blob. Called by `jetgym log usage`; of
the same numbers `prune` makes its choice.
"""

from collections import defaultdict
from contextlib import aclosing
from datetime import datetime
from heapq import nlargest

import msgspec

from bus import Bus
from bus.catalog import Entry, entries, stored_blobs
from contracts.deployments import RunStarted
from contracts.events import Event
from contracts.ids import ROOT_CALL


class TypeUsage(msgspec.Struct, frozen=True, kw_only=True):
    """One type of event."""

    type: str
    events: int
    bytes: int


class RolloutUsage(msgspec.Struct, frozen=True, kw_only=True):
    """One rollout."""

    rollout: str
    run: str
    events: int
    bytes: int
    blob_bytes: int
    """Of the blobs that it refers to; others may refer to them too."""


class RunUsage(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    run: str
    """Empty for what belongs to none."""
    rollouts: int
    """Asked for."""
    open: int
    """Of these, the ones that have not ended."""
    not_yet_asked: int
    events: int
    bytes: int
    blob_bytes: int
    last: datetime | None
    """Time of its last event."""
    trained: bool
    """A trainer takes from it, and may ask for more."""

    @property
    def finished(self) -> bool:
        """Whether nothing of it is open or still to be asked for."""
        return bool(self.run) and not self.open and not self.not_yet_asked


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """A log. Bytes are those of subjects and events, before compression."""

    events: int
    bytes: int
    blobs: int
    blob_bytes: int
    types: tuple[TypeUsage, ...]
    """The largest first."""
    runs: tuple[RunUsage, ...]
    """In the order in which they began."""
    largest: tuple[RolloutUsage, ...]


class _Sum:
    """What is added up."""

    __slots__ = ("bytes", "events", "refs")

    def __init__(self) -> None:
        self.events = self.bytes = 0
        self.refs: set[str] = set()

    def add(self, entry: Entry) -> None:
        self.events += 1
        self.bytes += entry.size
        self.refs.update(entry.refs)


class _Run(_Sum):
    __slots__ = ("again", "last", "open", "planned", "requested", "trained")

    def __init__(self) -> None:
        super().__init__()
        self.requested = self.again = 0
        self.planned: int | None = None
        self.open: set[str] = set()
        self.last: datetime | None = None
        self.trained = False

    def note(self, entry: Entry) -> None:
        """Counts an event of this run."""
        self.add(entry)
        if entry.time is not None:
            self.last = entry.time if self.last is None else max(self.last, entry.time)
        heading = entry.heading
        self.trained = self.trained or heading.form == "feed"
        if heading.form == "request" and heading.key == ROOT_CALL:
            self.requested += 1
            self.again += entry.again
            self.open.add(heading.rollout)
        elif heading.form == "ended":
            self.open.discard(heading.rollout)


async def usage(bus: Bus, *, largest: int = 10) -> Usage:
    """Adds up a log; raises `BusError`."""
    types: defaultdict[str, _Sum] = defaultdict(_Sum)
    runs: defaultdict[str, _Run] = defaultdict(_Run)
    rollouts: defaultdict[tuple[str, str], _Sum] = defaultdict(_Sum)
    for partition in range(bus.config.partitions):
        async with aclosing(entries(bus, partition)) as found:
            async for entry in found:
                types[entry.type].add(entry)
                if entry.type == "deployment.run":
                    planned = await _planned(bus, entry)
                    runs[planned.run_id].planned = planned.rollouts
                    runs[planned.run_id].note(entry)
                else:
                    runs[entry.run].note(entry)
                if entry.heading.rollout:
                    rollouts[entry.run, entry.heading.rollout].add(entry)
    blobs = await stored_blobs(bus)

    def blob_bytes(refs: set[str]) -> int:
        needed = refs.union(*(blobs[reference].parts for reference in refs if reference in blobs))
        return sum(blobs[reference].size for reference in needed if reference in blobs)

    def weight(item: tuple[tuple[str, str], _Sum]) -> int:
        return item[1].bytes + blob_bytes(item[1].refs)

    return Usage(
        events=sum(each.events for each in types.values()),
        bytes=sum(each.bytes for each in types.values()),
        blobs=len(blobs),
        blob_bytes=sum(blob.size for blob in blobs.values()),
        types=tuple(
            TypeUsage(type=name, events=each.events, bytes=each.bytes)
            for name, each in sorted(types.items(), key=lambda item: -item[1].bytes)
        ),
        runs=tuple(
            RunUsage(
                run=name,
                rollouts=run.requested,
                open=len(run.open),
                not_yet_asked=0 if run.planned is None else max(0, run.planned - run.requested + run.again),
                events=run.events,
                bytes=run.bytes,
                blob_bytes=blob_bytes(run.refs),
                last=run.last,
                trained=run.trained,
            )
            for name, run in runs.items()
        ),
        largest=tuple(
            RolloutUsage(
                rollout=rollout, run=run, events=each.events, bytes=each.bytes, blob_bytes=blob_bytes(each.refs)
            )
            for (run, rollout), each in nlargest(largest, rollouts.items(), key=weight)
        ),
    )


async def _planned(bus: Bus, entry: Entry) -> RunStarted:
    event = msgspec.json.decode(entry.raw, type=Event)
    return msgspec.json.decode(await bus.fetch_data(event), type=RunStarted)
