import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.spread import BINS, Spread

numbers = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=200)


def spread(values: list[float]) -> Spread:
    found = Spread()
    for value in values:
        found.add(value)
    return found


@given(numbers)
def test_count_mean_and_extremes_are_exact(values: list[float]) -> None:
    figures = spread(values).figures()
    assert (figures.count, figures.minimum, figures.maximum) == (len(values), min(values), max(values))
    assert figures.mean == pytest.approx(math.fsum(values) / len(values), rel=1e-9, abs=1e-6)


@given(numbers, st.sampled_from([0.0, 0.1, 0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_exact_to_three_digits(values: list[float], part: float) -> None:
    exact = sorted(values)[max(0, math.ceil(part * len(values)) - 1)]
    assert spread(values).quantile(part) == pytest.approx(exact, rel=0.01)


@given(numbers)
def test_each_number_is_in_one_bin(values: list[float]) -> None:
    bins = spread(values).figures().bins
    assert sum(bin_.count for bin_ in bins) == len(values)
    assert len(bins) <= BINS


def test_few_values_have_a_bin_each() -> None:
    bins = spread([0.0, 1.0, 1.0]).figures().bins
    assert [(bin_.low, bin_.high, bin_.count) for bin_ in bins] == [(0.0, 0.0, 1), (1.0, 1.0, 2)]


def test_memory_does_not_grow_with_how_many_numbers_there_are() -> None:
    drawn = random.Random(0)
    found = spread([drawn.expovariate(1.0) for _ in range(50_000)])
    assert len(found._counts) < 6_000


def test_what_is_no_finite_number_is_left_out() -> None:
    assert spread([math.nan, math.inf]).figures().count == 0
