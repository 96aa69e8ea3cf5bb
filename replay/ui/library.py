"""Which runs can be looked at, and where is each of them read?

The runs in `results/`, each from its own directory, or all runs of the log or the files that were named. Called by the
server. So many sources are open at a time; the one that was asked least lately is closed for another.
"""

import asyncio
from typing import Final

import msgspec

from replay.errors import UnknownName
from replay.opening import Where
from replay.places import Place, deployments, find_place, places
from replay.runs import RunRow, Sums, local_runs
from replay.ui.shelf import Shelf

OPEN: Final = 3
_ELSEWHERE: Final = ""
_FRESH_S: Final = 1.0


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is looked at."""

    run_id: str
    shelf: Shelf
    alone: bool
    """Whether the shelf holds nothing but this run."""


class Library:
    """The runs, and the sources that are open."""

    def __init__(self, where: Where) -> None:
        """Reads what `where` names: a log or files; else all runs below `where.results`, and a directory beside it."""
        self.where = where
        self._open: dict[str, Shelf] = {}
        self._listed: list[RunRow] = []
        self._listed_at = -_FRESH_S

    async def close(self) -> None:
        """Gives back what is open."""
        for shelf in self._open.values():
            await shelf.stop()
        self._open.clear()

    async def runs(self) -> list[RunRow]:
        """One line for each run, the newest first. Raises `ReplayError`."""
        if not self.where.is_local:
            return _runs_on(self._shelf(_ELSEWHERE, self.where, None))
        loop = asyncio.get_running_loop()
        if loop.time() - self._listed_at >= _FRESH_S:
            self._listed = await asyncio.to_thread(local_runs, self.where.results, self.where.folder)
            self._listed_at = loop.time()
        return self._listed

    async def open(self, run_id: str) -> Opened:
        """The run, being read if it was not before. Raises `UnknownName`, `NoSource`."""
        if not self.where.is_local:
            shelf = self._shelf(_ELSEWHERE, self.where, None)
            if await shelf.lacks(run_id):
                raise UnknownName(f"there is no run {run_id!r} here")
            return Opened(run_id=run_id, shelf=shelf, alone=False)
        place = await asyncio.to_thread(self._place, run_id)
        where = msgspec.structs.replace(self.where, run=str(place.path))
        return Opened(run_id=run_id, shelf=self._shelf(str(place.path), where, place), alone=place.only is None)

    async def holding(self, rollout_id: str) -> Opened:
        """The run that a rollout is of, by its ID. Raises `UnknownName`."""
        runs = await self.runs()
        begun = [run.run_id for run in runs if rollout_id.startswith(f"{run.run_id}-")]
        if not begun:
            raise UnknownName(f"no run here has a rollout {rollout_id!r}")
        return await self.open(max(begun, key=len))

    @property
    def first(self) -> str | None:
        """The run that was named when the app was started, if one was: its ID. Raises `ReplayError`."""
        if not self.where.is_local or self.where.run is None:
            return None
        return find_place(self.where.results, self.where.run).run_id

    def _place(self, run_id: str) -> Place:
        if self.where.run is not None:
            named = find_place(self.where.results, self.where.run)
            if named.run_id == run_id:
                return named
        known = [*places(self.where.results, self.where.folder), *deployments(self.where.results)]
        found = next((place for place in known if place.run_id == run_id), None)
        if found is None:
            raise UnknownName(f"there is no run {run_id!r} in {self.where.results}/")
        return found

    def _shelf(self, key: str, where: Where, place: Place | None) -> Shelf:
        shelf = self._open.pop(key, None)
        if shelf is None:
            shelf = Shelf(where, place)
            shelf.start()
        self._open[key] = shelf
        return shelf

    async def tidy(self) -> None:
        """Closes the sources over the bound, those first that were asked least lately."""
        while len(self._open) > OPEN:
            await self._open.pop(next(iter(self._open))).stop()


def _runs_on(shelf: Shelf) -> list[RunRow]:
    """The runs of a source, from its rollouts."""
    sums = Sums()
    for entry in shelf.entries:
        sums.add(entry)
    found = sums.runs(shelf.facts.asked)
    for run in found:
        if run.state != "ended" and shelf.state == "live":
            run.state = "running"
    return sorted(found, key=lambda run: run.started, reverse=True)
