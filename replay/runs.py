"""One line for each run: what `list --runs` shows.

Runs on this machine are told by their directories, without a server; those of a log or a file by its rollouts. What
those of an imported log came to, `replay import` has noted beside it, and `replay fork` the same of forks.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

import msgspec

from bus.run_folder import FAILURES, FORKS, IMPORTED, MATERIALIZED, METRICS, ROLLOUTS, live, noted
from replay.facts import facts_of
from replay.places import places
from replay.rows import Row, rows
from replay.source import Source


class RunRow(msgspec.Struct, kw_only=True):
    """A run at a glance."""

    run_id: str
    state: Literal["ended", "running", "interrupted", "unfinished"]
    """`interrupted` where nothing runs it on; `unfinished` in a log, which does not tell whether something does."""
    asked: int
    """Rollouts that it asked for, or still will."""
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    mean_reward: float | None = None
    wall_s: float | None = None
    """Seconds from its first request to its last end."""
    started: datetime
    where: str = ""
    """Its directory."""

    @property
    def ended(self) -> int:
        """Rollouts that have ended."""
        return self.completed + self.failed + self.cancelled


class _Reward(msgspec.Struct):
    mean: float | None = None


class _Metrics(msgspec.Struct):
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    reward: _Reward = msgspec.field(default_factory=_Reward)
    wall_s: float | None = None


class _MetricsFile(msgspec.Struct):
    run: _Metrics


def local_runs(results: Path) -> list[RunRow]:
    """The runs whose directories are below `results`, the newest first; not those of trainers, which have no end."""
    found = []
    for run in places(results):
        if run.noted:
            found.append(_noted_run(run.path, run.run_id))
        elif (run.path / MATERIALIZED).exists():
            found.append(_local_run(run.path, run.run_id, run.started))
    return found


async def note_imported(folder: Path, source: Source) -> None:
    """Notes the runs of an imported log in its directory, where `places` and `local_runs` find them."""
    found = [run for run in await runs_in(source) if run.run_id]
    (folder / IMPORTED).write_bytes(msgspec.json.encode(found))


def note_forks(folder: Path, run_id: str, started: datetime, asked: int, forks: Iterable[Row] = ()) -> None:
    """Notes the run of forks in the directory in whose log they are: when they are asked for, and what they came to.

    Raises `OSError`.
    """
    sums = _Sums()
    for row in forks:
        sums.add(row)
    (run,) = sums.runs({run_id: asked}) or [RunRow(run_id=run_id, state="unfinished", asked=asked, started=started)]
    with (folder / FORKS).open("ab") as file:
        file.write(msgspec.json.encode(run) + b"\n")


def _noted_run(folder: Path, run_id: str) -> RunRow:
    row = next(run for run in reversed(noted(folder, RunRow)) if run.run_id == run_id)
    row.where = str(folder)
    if row.state == "unfinished" and live(folder) is not None:
        row.state = "running"
    return row


def _local_run(folder: Path, run_id: str, started: datetime) -> RunRow:
    metrics = _metrics(folder / METRICS)
    row = RunRow(
        run_id=run_id,
        state="ended",
        asked=_lines(folder / MATERIALIZED),
        completed=metrics.completed,
        failed=metrics.failed,
        cancelled=metrics.cancelled,
        mean_reward=metrics.reward.mean,
        wall_s=metrics.wall_s,
        started=started,
        where=str(folder),
    )
    if row.ended < row.asked:  # the metrics are written when a run stops; one that is resumed begins its files anew
        row.completed = max(row.completed, _lines(folder / ROLLOUTS))
        row.failed = max(row.failed, _lines(folder / FAILURES) - row.cancelled)
    if live(folder) is not None:
        row.state = "running"
    elif row.ended < row.asked:
        row.state = "interrupted"
    return row


async def runs_in(source: Source) -> list[RunRow]:
    """The runs of a source in the order of their first end."""
    facts = await facts_of(source)
    sums = _Sums()
    async for row in rows(source, facts):
        sums.add(row)
    return sums.runs(facts.asked)


class _Sums:
    """What the runs came to that rollouts are of."""

    def __init__(self) -> None:
        self._found: dict[str, RunRow] = {}
        self._last: dict[str, datetime] = {}

    def add(self, row: Row) -> None:
        """Counts a rollout."""
        run = self._found.setdefault(row.run_id, RunRow(run_id=row.run_id, state="ended", asked=0, started=row.started))
        run.started = min(run.started, row.started)
        run.asked += 1
        if row.duration_s is None:
            return
        if row.outcome == "cancelled":
            run.cancelled += 1
        elif row.reward is None:
            run.failed += 1
        else:
            run.completed += 1
            mean = run.mean_reward or 0.0
            run.mean_reward = mean + (row.reward - mean) / run.completed
        ended = row.started + timedelta(seconds=row.duration_s)
        self._last[row.run_id] = max(self._last.get(row.run_id, ended), ended)

    def runs(self, asked: Mapping[str, int]) -> list[RunRow]:
        """The runs, in the order of their first rollout; `asked` says how many rollouts each one asked for."""
        for run in self._found.values():
            run.asked = max(run.asked, asked.get(run.run_id, 0))
            if run.ended < run.asked:
                run.state = "unfinished"
            if run.run_id in self._last:
                run.wall_s = (self._last[run.run_id] - run.started).total_seconds()
        return list(self._found.values())


def _metrics(path: Path) -> _Metrics:
    """What a run came to; nothing where that is not written yet."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_MetricsFile).run
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return _Metrics()


def _lines(path: Path) -> int:
    """Whole lines of a file, 0 where it is not there."""
    try:
        with path.open("rb") as file:
            return sum(line.endswith(b"\n") for line in file)
    except FileNotFoundError:
        return 0
