"""How are many numbers spread? Their count, mean, extremes, quantiles and histogram, in bounded memory.

Used by `figures`. A number counts under its first three significant digits, so memory does not grow with how many
there are, and a quantile is exact to these digits; count, mean, minimum and maximum are exact. It knows nothing of
rollouts.
"""

import math
from typing import Final

import msgspec

BINS: Final = 8
"""A histogram has at most so many."""
_WIDE: Final = 50.0
"""Numbers whose largest is so many times their median are put into bins that grow by a factor."""


class Bin(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers from `low` to `high`: a single number where both are equal."""

    low: float
    high: float
    count: int


class SpreadFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What a `Spread` comes to. All but `count` are None where there was no number."""

    count: int
    mean: float | None = None
    minimum: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    maximum: float | None = None
    bins: tuple[Bin, ...] = ()


class Spread:
    """Takes numbers, one after the other."""

    __slots__ = ("_count", "_counts", "_highest", "_lowest", "_mean")

    def __init__(self) -> None:
        self._counts: dict[float, int] = {}
        self._count = 0
        self._mean = 0.0
        self._lowest, self._highest = math.inf, -math.inf

    def add(self, value: float) -> None:
        """Counts one; a number that is not finite is left out."""
        if not math.isfinite(value):
            return
        self._count += 1
        self._mean += (value - self._mean) / self._count
        self._lowest, self._highest = min(self._lowest, value), max(self._highest, value)
        key = float(f"{value:.3g}")
        self._counts[key] = self._counts.get(key, 0) + 1

    @property
    def count(self) -> int:
        """How many there were."""
        return self._count

    def quantile(self, part: float) -> float:
        """The number that this part of all numbers is not above; of none it is 0."""
        wanted, seen = part * self._count, 0
        for value in sorted(self._counts):
            seen += self._counts[value]
            if seen >= wanted:
                return min(max(value, self._lowest), self._highest)
        return 0.0

    def figures(self) -> SpreadFigures:
        """All of it."""
        if not self._count:
            return SpreadFigures(count=0)
        return SpreadFigures(
            count=self._count,
            mean=self._mean,
            minimum=self._lowest,
            p50=self.quantile(0.5),
            p90=self.quantile(0.9),
            p99=self.quantile(0.99),
            maximum=self._highest,
            bins=tuple(self._bins()),
        )

    def _bins(self) -> list[Bin]:
        values = sorted(self._counts)
        if len(values) <= BINS:
            return [Bin(low=value, high=value, count=self._counts[value]) for value in values]
        edges = self._edges(values)
        counts = [0] * BINS
        place = 0
        for value in values:
            while place < BINS - 1 and value >= edges[place + 1]:
                place += 1
            counts[place] += self._counts[value]
        return [Bin(low=edges[at], high=edges[at + 1], count=count) for at, count in enumerate(counts)]

    def _edges(self, values: list[float]) -> list[float]:
        low, high = values[0], values[-1]
        if low > 0 and high > _WIDE * self.quantile(0.5):
            factor = (high / low) ** (1 / BINS)
            return [*(low * factor**number for number in range(BINS)), high]
        return [*(low + (high - low) * number / BINS for number in range(BINS)), high]
