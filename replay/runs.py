"""One line for each run: what `list --runs` shows.

Runs on this machine are told by their directories, without a server; those of a log or a file by its rollouts.
"""

from datetime import datetime
from pathlib import Path

import msgspec

from bus.run_folder import METRICS
from replay.facts import facts_of
from replay.places import live_url, places
from replay.rows import rows
from replay.source import Source


class RunRow(msgspec.Struct, kw_only=True):
    """A run at a glance."""

    run_id: str
    state: str
    """`live`, `ended`, or `stopped` where it can be resumed."""
    completed: int | None = None
    failed: int | None = None
    mean_reward: float | None = None
    wall_s: float | None = None
    """Seconds from its first request to its last end."""
    started: datetime
    where: str = ""
    """Its directory."""


class _Reward(msgspec.Struct):
    mean: float | None = None


class _Metrics(msgspec.Struct):
    completed: int | None = None
    failed: int | None = None
    reward: _Reward = msgspec.field(default_factory=_Reward)
    wall_s: float | None = None


class _MetricsFile(msgspec.Struct):
    run: _Metrics


def local_runs(results: Path) -> list[RunRow]:
    """The runs whose directories are below `results`, the newest first."""
    found = []
    for run in places(results):
        metrics = _metrics(run.path / METRICS)
        state = "live" if live_url(run) is not None else "ended" if metrics is not None else "stopped"
        row = RunRow(run_id=run.run_id, state=state, started=run.started, where=str(run.path))
        if metrics is not None:
            row.completed, row.failed, row.wall_s = metrics.completed, metrics.failed, metrics.wall_s
            row.mean_reward = metrics.reward.mean
        found.append(row)
    return found


async def runs_in(source: Source) -> list[RunRow]:
    """The runs of a source in the order of their first end."""
    found: dict[str, RunRow] = {}
    rewards: dict[str, float] = {}
    async for row in rows(source, await facts_of(source)):
        run = found.get(row.run_id)
        if run is None:
            run = RunRow(run_id=row.run_id, state="ended", completed=0, failed=0, started=row.started)
            found[row.run_id] = run
        run.started = min(run.started, row.started)
        if row.outcome == "in flight":
            run.state = "in flight"
            continue
        assert run.completed is not None
        assert run.failed is not None
        if row.reward is None:
            run.failed += 1
        else:
            run.completed += 1
            rewards[row.run_id] = rewards.get(row.run_id, 0.0) + row.reward
            run.mean_reward = rewards[row.run_id] / run.completed
        ended = (row.started - run.started).total_seconds() + (row.duration_s or 0.0)
        run.wall_s = max(run.wall_s or 0.0, ended)
    return list(found.values())


def _metrics(path: Path) -> _Metrics | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_MetricsFile).run
    except (OSError, msgspec.DecodeError):
        return None
