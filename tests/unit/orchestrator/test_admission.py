"""How much may be asked for: whole groups, halves of groups, and what a batch lacks."""

from collections import Counter

from orchestrator.admission import Pacing
from orchestrator.groups import Groups


def counts(*, left: int = 0, now: int = 0, rollouts: int = 0, in_hand: int = 0) -> Groups:
    """Of rollouts in groups of 8."""
    return Groups(
        uncommitted=Counter({8: left}),
        to_deliver=Counter({8: left - in_hand}),
        committed_now=Counter({8: now}),
        unfinished_rollouts=rollouts,
    )


def test_a_group_may_be_asked_for_while_the_bound_is_not_reached() -> None:
    """(max_lag + 1) x groups, of what is left of open groups and of what was committed at this version."""
    pacing = Pacing(groups=4, max_lag=1, unfinished=100)
    assert pacing.bound == 8
    assert pacing.room(counts(left=7 * 8), 8)
    assert not pacing.room(counts(left=4 * 8, now=4 * 8), 8)
    assert pacing.room(counts(left=3 * 8 + 5, now=4 * 8 - 5), 8), "what is left of a group counts as a part"
    assert not pacing.room(counts(left=3 * 8 + 6, now=4 * 8 - 5), 8)
    assert not pacing.room(counts(rollouts=93), 8)
    assert pacing.room(counts(), 101), "a group that is larger comes alone"
    assert Pacing(groups=4, max_lag=None, unfinished=100).room(counts(left=8000, rollouts=9), 8)


def test_what_the_first_batch_of_a_version_lacks_may_be_asked_for_whatever_the_bound_is() -> None:
    """Else 15 rollouts of groups of 8 would wait for ever where the bound is two of them."""
    pacing = Pacing(groups=1, max_lag=1, unfinished=100, batch_rollouts=15)
    assert pacing.room(counts(left=9), 8)
    assert not pacing.room(counts(left=15), 8)
    assert not pacing.room(counts(left=9, now=15), 8), "it is not the first one"
    assert not pacing.room(counts(left=16, in_hand=7), 8), "nor is it here"
