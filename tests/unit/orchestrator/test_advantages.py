"""Advantages are relative to the group; failures have none and count for none."""

import pytest

from orchestrator.advantages import group_advantages, without_variance


def test_advantages_are_rewards_minus_the_mean_of_those_that_have_one() -> None:
    assert group_advantages([1.0, 0.0, None, 0.5]) == [0.5, -0.5, None, 0.0]
    assert group_advantages([None, None]) == [None, None]
    assert group_advantages([]) == []


def test_normalized_advantages_are_in_standard_deviations_and_equal_rewards_have_none() -> None:
    normalized = group_advantages([0.0, 4.0], normalize=True)
    assert normalized == pytest.approx([-1.0, 1.0])
    assert group_advantages([2.0, 2.0], normalize=True) == [0.0, 0.0]


@pytest.mark.parametrize(("rewards", "nothing"), [([], True), ([1.0], True), ([1.0, 1.0], True), ([1.0, 0.0], False)])
def test_a_group_teaches_nothing_unless_two_rewards_differ(rewards: list[float], nothing: bool) -> None:
    assert without_variance(rewards) is nothing
