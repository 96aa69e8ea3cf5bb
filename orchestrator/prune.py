"""Which runs may leave a log for good, and how do they?

Only whole runs go, and only those of which nothing is open: no rollout is ever cut. Blobs that no event needs go too,
whatever left them: this pruning, one before it, or a writer that died before its event. They stay while somebody serves
the deployment: a process that writes remembers which blobs it has stored, and would refer to them. Called by
`jetgym log prune`, and by `ageing`.
"""

from array import array
from collections.abc import Collection, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta

import msgspec

from bus import Bus
from bus.catalog import Entry, StoredBlob, entries, stored_blobs
from bus.overview import pool_states
from bus.trim import cut_before, delete_events, delete_pieces
from contracts.ids import ROOT_CALL
from orchestrator.errors import UsageError, nearest
from orchestrator.usage import RunUsage


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """What is gone."""

    runs: tuple[str, ...]
    events: int
    bytes: int
    blobs: int
    blob_bytes: int
    blobs_left: int
    """Blobs that no event needs, kept because somebody serves the deployment."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs are to go: those that are named, else the finished ones that fit."""

    named: tuple[str, ...] = ()
    older_than: timedelta | None = None
    keep: int | None = None
    """How many of the newest finished runs stay."""


def choose(runs: Sequence[RunUsage], choice: Choice, *, served: bool) -> list[RunUsage]:
    """The runs that go; raises `UsageError` where one that is named may not."""
    known = {run.run: run for run in runs if run.run}
    if choice.named:
        for name in choice.named:
            if name not in known:
                raise UsageError(f"the log has no run {name!r}; {nearest(name, list(known))}")
            if known[name].open:
                raise UsageError(f"run {name} has {known[name].open} open rollouts: resume or cancel it first")
            if known[name].not_yet_asked and served:
                raise UsageError(
                    f"run {name} has not asked for {known[name].not_yet_asked} of its rollouts yet, and workers serve "
                    f"this log: stop them first"
                )
        return [known[name] for name in dict.fromkeys(choice.named)]
    finished = sorted((run for run in known.values() if run.finished), key=_last, reverse=True)
    if choice.keep is not None:
        finished = finished[choice.keep :]
    if choice.older_than is not None:
        before = datetime.now(UTC) - choice.older_than
        finished = [run for run in finished if _last(run) < before]
    return finished[::-1]


def _last(run: RunUsage) -> datetime:
    return run.last or datetime.fromtimestamp(0, UTC)


async def is_served(bus: Bus) -> bool:
    """Whether some worker takes part in the deployment, or may again go on with what it held; raises `BusError`."""
    return any(pool.served or pool.held for pool in await pool_states(bus))


async def prune(bus: Bus, runs: Collection[str], *, keep_blobs: bool = False) -> Pruned:
    """Deletes runs, as `choose` chose them, and what nothing needs; raises `UsageError` if they are open, `BusError`.

    Blobs stay with `keep_blobs`, or while somebody serves the deployment.
    """
    stored = await stored_blobs(bus)  # before the events: what is stored from now on has its event later
    sorted_ = [await _sort(bus, partition, runs) for partition in range(bus.config.partitions)]
    if still_open := [rollout for found in sorted_ for rollout in found.open]:
        raise UsageError(f"rollout {still_open[0]} is open, so nothing was pruned: its run goes on again")
    for partition, found in enumerate(sorted_):
        await delete_events(bus, partition, found.runs)  # first: a run that is half gone can then be pruned again
        if found.first_kept > 1:
            await cut_before(bus, partition, found.first_kept)
        await delete_events(bus, partition, found.single)
    blobs = _unneeded(stored, set[str]().union(*(found.kept_blobs for found in sorted_)))
    keep_blobs = keep_blobs or await is_served(bus)
    if not keep_blobs:
        await delete_pieces(bus, [seq for blob in blobs.values() for seq in blob.places])
    return Pruned(
        runs=tuple(runs),
        events=sum(found.events for found in sorted_),
        bytes=sum(found.bytes for found in sorted_),
        blobs=0 if keep_blobs else len(blobs),
        blob_bytes=0 if keep_blobs else sum(blob.size for blob in blobs.values()),
        blobs_left=len(blobs) if keep_blobs else 0,
    )


def _unneeded(stored: dict[str, StoredBlob], kept: set[str]) -> dict[str, StoredBlob]:
    """The blobs to which no event refers, but for the parts of those to which one does."""
    needed = kept.union(*(blob.parts for ref, blob in stored.items() if ref in kept))
    return {ref: blob for ref, blob in stored.items() if ref not in needed}


class _Sorted:
    """A partition's events, sorted into those that go and those that stay."""

    def __init__(self) -> None:
        self.first_kept = 1
        """All events of rollouts before this one go."""
        self.single = array("Q")
        """The others that go, those that end a rollout last."""
        self.runs: list[int] = []
        self.open: set[str] = set()
        self.events = self.bytes = 0
        self.kept_blobs: set[str] = set()


async def _sort(bus: Bus, partition: int, runs: Collection[str]) -> _Sorted:
    found = _Sorted()
    begun = {bus.subjects.deployment("run", run) for run in runs}
    ends = array("Q")
    cutting = True
    async with aclosing(entries(bus, partition)) as every:
        async for entry in every:
            started = entry.subject in begun
            if not (started or _goes(entry, runs)):
                found.kept_blobs.update(entry.refs)
                cutting = cutting and not entry.heading.rollout and entry.heading.form == "other"
                continue
            found.events += 1
            found.bytes += entry.size
            heading = entry.heading
            if heading.form == "request" and heading.key == ROOT_CALL and entry.run:
                found.open.add(heading.rollout)
            elif heading.form == "ended":
                found.open.discard(heading.rollout)
            if started:
                found.runs.append(entry.seq)
            elif cutting:
                found.first_kept = entry.seq + 1
            else:
                (ends if heading.form == "ended" else found.single).append(entry.seq)
    found.single.extend(ends)
    return found


def _goes(entry: Entry, runs: Collection[str]) -> bool:
    """Whether it belongs to one of these runs; also what an earlier pruning left that was cut off half-way."""
    if entry.run or not entry.heading.rollout:
        return entry.run in runs
    return any(entry.heading.rollout.startswith(f"{run}-") for run in runs)
