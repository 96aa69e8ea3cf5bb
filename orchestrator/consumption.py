"""How is it written down that a trainer has used a batch, or will never use a group?

Each commit and each drop is one record of the feed, written before the counts change. Called by `Trainer.commit` and by
`feed`. It decides nothing.
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any

from contracts.feeds import FeedRecord
from contracts.ids import check_name
from orchestrator.delivered import Batch
from orchestrator.feed_records import FeedRecords
from orchestrator.feed_view import FeedView
from orchestrator.groups import Unit


class Consumption:
    """Writes the records of one feed."""

    def __init__(self, view: FeedView, records: FeedRecords) -> None:
        self._view, self._records = view, records
        self._recording = asyncio.Lock()
        self._writing: set[asyncio.Task[None]] = set()

    @property
    def dropped(self) -> Mapping[str, int]:
        """Rollouts that were dropped so far, by reason."""
        return self._records.latest.refused

    @property
    def untrainable(self) -> int:
        """Rollouts that were committed so far and had a reward, and no token to give it to."""
        return self._records.latest.untrainable

    async def open(self) -> None:
        """The first record."""
        await self._records.write("opened", self._record(self._view.version))

    async def commit(self, batch: Batch) -> None:
        """See `Trainer.commit`. What was begun is done, also if whoever waits is cancelled."""
        await self._whole(self._commit(batch))

    async def _commit(self, batch: Batch) -> None:
        async with self._recording:
            units = self._left(batch)
            if not units:
                return
            names = tuple(name for unit in units for name in unit.names)
            untrainable = sum(len(unit.untrainable) for unit in units)
            version = batch.version if units[0].members[0].earlier else self._view.version
            record = self._record(version, units, committed=names, lags=batch.lags, untrainable=untrainable)
            await self._records.write("committed", record)
            self._view.groups.remove(units, trained=True)
        self._view.bell.ring()

    def _left(self, batch: Batch) -> list[Unit]:
        """What of a batch is neither committed nor dropped."""
        if batch._consumption is not self:  # noqa: SLF001
            raise ValueError(
                "this batch is of another connection of a trainer: what was not committed there is delivered here again"
            )
        return _going(batch._units)  # noqa: SLF001

    async def drop_batch(self, batch: Batch, reason: str) -> None:
        """See `Batch.drop`."""
        units = self._left(batch)
        if units:
            await self.drop({check_name(reason, "reason"): units})

    async def drop(self, useless: Mapping[str, Sequence[Unit]]) -> None:
        """They will not be used, by reason. Raises `FeedTaken`, `BusError`."""
        await self._whole(self._drop(useless))

    async def _whole(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        await asyncio.shield(task)

    async def close(self) -> None:
        """Waits for what is being written."""
        await asyncio.gather(*self._writing, return_exceptions=True)

    async def _drop(self, useless: Mapping[str, Sequence[Unit]]) -> None:
        async with self._recording:
            left = {reason: going for reason, those in useless.items() if (going := _going(those))}
            units = [unit for those in left.values() for unit in those]
            if not units:
                return  # another one that takes from this feed has found the same
            reasons = {name: reason for reason, those in left.items() for unit in those for name in unit.names}
            refused = {reason: sum(len(unit.members) for unit in those) for reason, those in left.items()}
            record = self._record(self._view.version, units, dropped=reasons, refused=refused)
            await self._records.write("dropped", record)
            self._view.groups.remove(units, trained=False)
        self._view.bell.ring()

    def _record(
        self,
        version: int,
        units: Sequence[Unit] = (),
        *,
        lags: Mapping[int, int] | None = None,
        untrainable: int = 0,
        refused: Mapping[str, int] | None = None,
        **what: Any,
    ) -> FeedRecord:
        pacing, before = self._view.pacing, self._records.latest
        bounds = {"groups": pacing.groups, "max_lag": pacing.max_lag}
        unfinished = self._view.groups.unfinished_groups
        return FeedRecord(
            version=version,
            groups=_emptied(units),
            rollouts=before.rollouts + sum(len(unit.members) for unit in units),
            staleness=dict(sorted((Counter(before.staleness) + Counter(lags)).items())),
            untrainable=before.untrainable + untrainable,
            refused=dict(Counter(before.refused) + Counter(refused)),
            unfinished=unfinished,
            waiting=len(self._view.groups.open) - unfinished - _emptied(units),
            pacing={name: bound for name, bound in bounds.items() if bound is not None},
            **what,
        )


def _going(units: Iterable[Unit]) -> list[Unit]:
    """Those that are neither committed nor dropped."""
    return [unit for unit in units if not all(member.gone for member in unit.members)]


def _emptied(units: Iterable[Unit]) -> int:
    """Of how many groups nothing is left without these."""
    going: dict[str, int] = {}
    groups = {}
    for unit in units:
        groups[unit.group.id] = unit.group
        going[unit.group.id] = going.get(unit.group.id, 0) + sum(not member.gone for member in unit.members)
    return sum(sum(not m.gone for m in groups[name].members) == count for name, count in going.items())
