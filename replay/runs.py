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
from replay.places import Place, deployments, places
from replay.rows import Row, rows
from replay.source import Source


class RunRow(msgspec.Struct, kw_only=True):
    """A run at a glance. Numbers are None where its directory does not have them, as of a trainer or a deployment."""

    run_id: str
    state: Literal["ended", "running", "interrupted", "unfinished"]
    """`interrupted` where nothing runs it on; `unfinished` in a log, which does not tell whether something does, and of
    forks whose command ended before they did."""
    asked: int | None = None
    """Rollouts that it asked for, or still will."""
    completed: int | None = None
    failed: int | None = None
    cancelled: int | None = None
    mean_reward: float | None = None
    wall_s: float | None = None
    """Seconds from its first request to its last end."""
    started: datetime
    where: str = ""
    """Its directory."""

    @property
    def ended(self) -> int | None:
        """Rollouts that have ended."""
        if self.completed is None or self.failed is None or self.cancelled is None:
            return None
        return self.completed + self.failed + self.cancelled


class _Reward(msgspec.Struct):
    mean: float | None = None


class _Metrics(msgspec.Struct):
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    reward: _Reward = msgspec.field(default_factory=_Reward)
    started: datetime | None = None
    """When the last command of the run began, of which are the seconds."""
    wall_s: float | None = None
    ended_earlier: int = 0


class _MetricsFile(msgspec.Struct):
    run: _Metrics


def local_runs(results: Path, beside: Path | None = None) -> list[RunRow]:
    """The runs whose directories are below `results`, and those in one beside it, the newest first; and deployments."""
    found = sorted([*places(results, beside), *deployments(results)], key=lambda run: run.started, reverse=True)
    return [_local_run(run) for run in found]


async def note_imported(folder: Path, source: Source) -> None:
    """Notes the runs of an imported log in its directory, where `places` and `local_runs` find them."""
    found = [run for run in await runs_in(source) if run.run_id]
    (folder / IMPORTED).write_bytes(msgspec.json.encode(found))


def note_forks(folder: Path, run_id: str, started: datetime, asked: int, forks: Iterable[Row] = ()) -> None:
    """Notes the run of forks in the directory in whose log they are: when they are asked for, and what they came to.

    Raises `OSError`.
    """
    sums = Sums()
    for row in forks:
        sums.add(row)
    (run,) = sums.runs({run_id: asked}) or [RunRow(run_id=run_id, state="unfinished", asked=asked, started=started)]
    with (folder / FORKS).open("ab") as file:
        file.write(msgspec.json.encode(run) + b"\n")


def _local_run(run: Place) -> RunRow:
    if run.noted:
        row = next(row for row in reversed(noted(run.path, RunRow)) if row.run_id == run.run_id)
    elif (run.path / MATERIALIZED).exists():
        row = _own_run(run)
    else:  # a trainer's, or a deployment's
        row = RunRow(run_id=run.run_id, state="ended", started=run.started)
    row.where = str(run.path)
    if live(run.path) is not None and (row.state != "ended" or not run.noted):
        row.state = "running"
    return row


def _own_run(run: Place) -> RunRow:
    metrics = _metrics(run.path / METRICS)
    wall_s = metrics.wall_s
    if wall_s is not None and metrics.started is not None and metrics.ended_earlier:
        wall_s += (metrics.started - run.started).total_seconds()
    ended = metrics.completed + metrics.failed + metrics.cancelled
    row = RunRow(
        run_id=run.run_id,
        state="ended",
        asked=(asked := _lines(run.path / MATERIALIZED)),
        completed=metrics.completed,
        failed=metrics.failed,
        cancelled=metrics.cancelled,
        mean_reward=metrics.reward.mean,
        wall_s=wall_s,
        started=run.started,
    )
    if ended < asked:  # the metrics are written when a run stops; one that is resumed begins its files anew
        row.completed = max(metrics.completed, _lines(run.path / ROLLOUTS))
        row.failed = max(metrics.failed, _lines(run.path / FAILURES) - metrics.cancelled)
        if row.completed + row.failed + metrics.cancelled < asked:
            row.state = "interrupted"
    return row


async def runs_in(source: Source) -> list[RunRow]:
    """The runs of a source in the order of their first end."""
    facts = await facts_of(source)
    sums = Sums()
    async for row in rows(source, facts):
        sums.add(row)
    return sums.runs(facts.asked)


class _Sum(msgspec.Struct):
    started: datetime
    last: datetime | None = None
    asked: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    mean: float | None = None


class Sums:
    """What the runs came to that rollouts are of."""

    def __init__(self) -> None:
        self._found: dict[str, _Sum] = {}

    def add(self, row: Row) -> None:
        """Counts a rollout."""
        run = self._found.setdefault(row.run_id, _Sum(row.started))
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
            mean = run.mean or 0.0
            run.mean = mean + (row.reward - mean) / run.completed
        ended = row.started + timedelta(seconds=row.duration_s)
        run.last = max(run.last or ended, ended)

    def runs(self, asked: Mapping[str, int]) -> list[RunRow]:
        """The runs, in the order of their first rollout; `asked` says how many rollouts each one asked for."""
        return [_row(run_id, run, max(run.asked, asked.get(run_id, 0))) for run_id, run in self._found.items()]


def _row(run_id: str, run: _Sum, asked: int) -> RunRow:
    return RunRow(
        run_id=run_id,
        state="unfinished" if run.completed + run.failed + run.cancelled < asked else "ended",
        asked=asked,
        completed=run.completed,
        failed=run.failed,
        cancelled=run.cancelled,
        mean_reward=run.mean,
        wall_s=(run.last - run.started).total_seconds() if run.last is not None else None,
        started=run.started,
    )


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
