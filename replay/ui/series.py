"""The charts of a run: what was going on over its time, in so many bins.

Pure. All of it comes from the rollouts' entries, so a run that ended last week has the same charts as a live one.
Times are seconds since the run's first request. Called by the server, for one run at a time.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from replay.ui.entries import Entry

_BINS: Final = (16, 72)
"""At least and at most."""
_A_BIN: Final = 8
"""Rollouts that a bin should hold."""
_LEAST_S: Final = 0.05
_STEPS: Final = 20

Numbers: TypeAlias = npt.NDArray[np.float64]


class Histogram(msgspec.Struct, frozen=True, kw_only=True):
    """How often what was seen."""

    edges: list[float]
    """One more than there are counts."""
    counts: list[int]


class Charts(msgspec.Struct, frozen=True, kw_only=True):
    """A run in numbers. A list over time has one element a bin, None where there is nothing to tell."""

    version: int
    total: int
    asked: int
    """Rollouts that the run asks for; as many as there are, where that is not known."""
    outcomes: dict[str, int]
    errors: dict[str, int]
    agents: dict[str, int]
    environments: dict[str, int]
    mean_reward: float | None
    tokens_in: int
    tokens_out: int
    adopted: int
    """Rollouts that another worker carried on."""
    started: datetime | None
    span_s: float
    """From the first request to the last thing that is known."""
    duration_s: tuple[float, float, float] | None
    """The median, the 90th and the 99th percentile of the rollouts that ended."""
    times: list[float]
    """Where each bin ends."""
    ended_per_s: list[float]
    failed_per_s: list[float]
    reward: list[float | None]
    """The mean of those that ended in the bin; `low` and `high` hold the middle eight of ten."""
    low: list[float | None]
    high: list[float | None]
    in_flight: list[int]
    """The most at once in the bin."""
    waiting: list[int]
    """Of those, the ones that no agent's worker had taken; of rollouts that have ended since."""
    staleness: list[float | None]
    """How far, on average, the oldest tokens of what ended in the bin were behind the newest version known by then."""
    stalest: list[int | None]
    versions: list[int | None]
    """The newest version known at the end of the bin."""
    rewards: Histogram | None
    durations: Histogram | None


def charts(rows: Sequence[Entry], version: int, asked: int = 0, now: datetime | None = None) -> Charts:
    """The charts; `now` is given while the run is live, else they end with its last end."""
    first = min((row.started for row in rows), default=None)
    begun = np.array([(row.started - first).total_seconds() if first else 0.0 for row in rows])
    took = _numbers(row.duration_s for row in rows)
    ends = begun + took
    over = ~np.isnan(ends)
    known = _numbers(row.reward for row in rows)
    span = max(_LEAST_S, *(ends[over].tolist() or [0.0]), *begun.tolist()[-1:])
    if now is not None and first is not None:
        span = max(span, (now - first).total_seconds())
    bins = min(max(len(rows) // _A_BIN, _BINS[0]), _BINS[1])
    edges = np.linspace(0.0, span, bins + 1)
    low, mean, high = _bands(ends, known, edges)
    lag, stalest, newest = _staleness(rows, begun, ends, edges)
    queued = _numbers(row.queue_s for row in rows)
    width = span / bins
    failed = over & np.isnan(known)
    return Charts(
        version=version,
        total=len(rows),
        asked=max(asked, len(rows)),
        outcomes=dict(Counter(row.outcome for row in rows)),
        errors=dict(Counter(row.error for row in rows if row.error)),
        agents=dict(Counter(row.agent for row in rows)),
        environments=dict(Counter(row.environment for row in rows if row.environment)),
        mean_reward=float(np.nanmean(known)) if not np.isnan(known).all() else None,
        tokens_in=sum(row.input_tokens or 0 for row in rows),
        tokens_out=sum(row.output_tokens or 0 for row in rows),
        adopted=sum(row.adoptions > 0 for row in rows),
        started=first,
        span_s=float(span),
        duration_s=_percentiles(took[over]),
        times=edges[1:].tolist(),
        ended_per_s=(np.histogram(ends[over], edges)[0] / width).tolist(),
        failed_per_s=(np.histogram(ends[failed], edges)[0] / width).tolist(),
        reward=mean,
        low=low,
        high=high,
        in_flight=_most(begun, ends[over], edges),
        waiting=_most(begun[~np.isnan(queued)], (begun + queued)[~np.isnan(queued)], edges),
        staleness=lag,
        stalest=stalest,
        versions=newest,
        rewards=_histogram(known[~np.isnan(known)]),
        durations=_histogram(took[over]),
    )


def _most(begun: Numbers, over: Numbers, edges: Numbers) -> list[int]:
    """The most at once in each bin of what begins and is over at these times."""
    times = np.concatenate((begun, over))
    steps = np.concatenate((np.ones(len(begun), np.int64), -np.ones(len(over), np.int64)))
    order = np.lexsort((steps, times))  # what is over as another one begins makes room for it
    times, known = times[order], np.cumsum(np.append(0, steps[order]))
    most = known[np.searchsorted(times, edges[:-1], side="right")]
    np.maximum.at(most, _bins(times, edges), known[1:])
    return list(map(int, most))


def _bins(times: Numbers, edges: Numbers) -> npt.NDArray[np.int64]:
    return np.clip(np.searchsorted(edges, times, side="left") - 1, 0, len(edges) - 2)


def _bands(
    ends: Numbers, values: Numbers, edges: Numbers
) -> tuple[list[float | None], list[float | None], list[float | None]]:
    """The 10th percentile, the mean and the 90th percentile of what ended in each bin."""
    there = ~np.isnan(values) & ~np.isnan(ends)
    places, found = _bins(ends[there], edges), values[there]
    order = np.argsort(places, kind="stable")
    parts = np.split(found[order], np.searchsorted(places[order], np.arange(1, len(edges) - 1)))
    low: list[float | None] = []
    mean: list[float | None] = []
    high: list[float | None] = []
    for part in parts:
        if not len(part):
            for band in (low, mean, high):
                band.append(None)
            continue
        tenth, ninetieth = np.percentile(part, (10, 90)).tolist()
        low.append(tenth)
        mean.append(float(part.mean()))
        high.append(ninetieth)
    return low, mean, high


def _staleness(
    rows: Sequence[Entry], begun: Numbers, ends: Numbers, edges: Numbers
) -> tuple[list[float | None], list[int | None], list[int | None]]:
    """Per bin: the mean and the greatest lag of what ended in it, and the newest version."""
    asked = _numbers(row.asked_version for row in rows)
    newest = _numbers(row.policy[1] if row.policy and row.duration_s is not None else None for row in rows)
    oldest = _numbers(row.policy[0] if row.policy and row.duration_s is not None else None for row in rows)
    times = np.concatenate((begun[~np.isnan(asked)], ends[~np.isnan(newest)]))
    bins = len(edges) - 1
    if not len(times):
        nothing: list[None] = [None] * bins
        return list(nothing), list(nothing), list(nothing)
    order = np.argsort(times)
    times = times[order]
    known = np.maximum.accumulate(np.concatenate((asked[~np.isnan(asked)], newest[~np.isnan(newest)]))[order])
    there = ~np.isnan(oldest)
    lags = known[np.searchsorted(times, ends[there], side="right") - 1] - oldest[there]
    places = _bins(ends[there], edges)
    counts = np.bincount(places, minlength=bins)
    sums = np.bincount(places, weights=lags, minlength=bins)
    most = np.zeros(bins)
    np.maximum.at(most, places, lags)
    at = np.searchsorted(times, edges[1:], side="right") - 1
    return (
        [float(total / count) if count else None for total, count in zip(sums, counts, strict=True)],
        [int(lag) if count else None for lag, count in zip(most, counts, strict=True)],
        [None if place < 0 else int(known[place]) for place in at],
    )


def _numbers(values: Iterable[float | None]) -> Numbers:
    """As an array, NaN where there is none."""
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _percentiles(values: Numbers) -> tuple[float, float, float] | None:
    if not len(values):
        return None
    half, nine, most = np.percentile(values, (50, 90, 99)).tolist()
    return half, nine, most


def _histogram(values: Numbers) -> Histogram | None:
    if not len(values):
        return None
    counts, edges = np.histogram(values, _STEPS)
    return Histogram(edges=edges.tolist(), counts=counts.tolist())
