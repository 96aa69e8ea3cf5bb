"""The metrics of a run, from its outcomes as they come: rewards, pass@k, tokens, durations, failures.

Pure. Per agent and per environment. Standard errors are over tasks, since the repeats of a task are not independent.
pass@k is the expected best reward of k of a task's n rollouts, `sum_i r_(i) C(i-1, k-1) / C(n, k)` over the sorted
rewards; for rewards of 0 and 1 that is the estimator of Chen et al., "Evaluating Large Language Models Trained on
Code" (2021). Failed and cancelled rollouts have no reward and are counted beside it. Where tokens were asked for,
so are the model calls with and without them, and the rollouts that have a reward and no token to train on.
"""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable
from math import comb, sqrt
from typing import Any

from orchestrator.results import Outcome


class Metrics:
    """Counts outcomes; keeps one number a rollout, no line."""

    def __init__(self) -> None:
        self._rewards: defaultdict[int, list[float]] = defaultdict(list)
        self._failures: Counter[str] = Counter()
        self._retries = 0
        self.cancelled = 0
        """Rollouts that somebody ended."""
        self._captured = self._flawed = self._token_less = 0
        self._numbers: defaultdict[str, list[float]] = defaultdict(list)

    @property
    def completed(self) -> int:
        """Rollouts with a reward."""
        return sum(map(len, self._rewards.values()))

    @property
    def failed(self) -> int:
        """Rollouts that ended without one, but for those that were cancelled."""
        return self._failures.total()

    def add(self, ended: Outcome) -> None:
        """Counts one ended rollout."""
        self._retries += ended.attempt
        if ended.reward is not None:
            self._rewards[ended.task_index].append(ended.reward)
        elif ended.error == "cancelled":
            self.cancelled += 1
        else:
            self._failures[ended.error or "unknown"] += 1
        if (stats := ended.stats) is None:
            return
        self._captured += stats.captured
        self._flawed += stats.flawed
        self._token_less += ended.reward is not None and stats.token_less
        for name, value in (
            ("input_tokens", stats.usage.input_tokens),
            ("output_tokens", stats.usage.output_tokens),
            ("turns", stats.turns),
            ("tool_calls", stats.tool_calls),
            ("duration_s", stats.timings.total_s - stats.timings.queue_s),
            ("queue_s", stats.timings.queue_s),
            ("model_s", stats.timings.model_s),
            ("tools_s", stats.timings.tools_s),
            ("verify_s", stats.timings.verify_s),
        ):
            self._numbers[name].append(value)

    def summary(self) -> dict[str, Any]:
        """The metrics as they stand in `metrics.json`."""
        tasks = list(self._rewards.values())
        means = [statistics.fmean(rewards) for rewards in tasks]
        repeats = min(map(len, tasks), default=0)
        return {
            "tasks": len(tasks),
            "completed": self.completed,
            "failed": self.failed,
            "cancelled": self.cancelled,
            "retries": self._retries,
            "failures": dict(self._failures.most_common()),
            "reward": {
                "mean": _rounded(statistics.fmean(means)) if means else None,
                "standard_error": _rounded(statistics.stdev(means) / sqrt(len(means))) if len(means) > 1 else None,
            },
            "pass@k": {str(k): _rounded(_mean(best_of(rewards, k) for rewards in tasks)) for k in _ks(repeats)},
            "mean@k": {str(repeats): _rounded(_mean(means))} if repeats else {},
            **self._tokens(),
            **{name: _distribution(values) for name, values in self._numbers.items()},
        }

    def _tokens(self) -> dict[str, int]:
        if not self._captured and not self._flawed:
            return {}
        calls = {"captured_calls": self._captured, "tokenless_calls": self._flawed}
        return {**calls, "tokenless_rollouts": self._token_less}


def best_of(rewards: list[float], k: int) -> float:
    """The expected best of `k` rewards drawn from `rewards` without putting back; needs `k <= len(rewards)`."""
    ranked, every = sorted(rewards), comb(len(rewards), k)
    return sum(reward * comb(rank, k - 1) for rank, reward in enumerate(ranked)) / every


def _ks(repeats: int) -> list[int]:
    powers = [2**exponent for exponent in range(repeats.bit_length()) if 2**exponent <= repeats]
    return sorted({*powers, repeats}) if repeats else []


def _rounded(value: float) -> float:
    """Without the last bits of sums, which mean nothing."""
    return round(value, 6)


def _mean(values: Iterable[float]) -> float:
    return statistics.fmean(values)


def _distribution(values: list[float]) -> dict[str, float]:
    ranked = sorted(values)
    return {
        "sum": _rounded(sum(values)),
        "mean": _rounded(statistics.fmean(values)),
        "p50": _rounded(statistics.median(ranked)),
        "p95": _rounded(ranked[int(len(ranked) * 0.95)]),
        "max": _rounded(ranked[-1]),
    }
