"""What may be asked for, and what may be taken: nothing becomes staler than the bound, whatever finishes first."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.admission import Guard, Pacing


def test_a_group_may_be_asked_for_while_the_bound_is_not_reached() -> None:
    """(max_lag + 1) x groups, of open groups and of those committed at this version."""
    pacing = Pacing(groups=4, max_lag=1, unfinished=100)
    assert pacing.bound == 8
    assert pacing.room(open_groups=7, committed_now=0, rollouts=0, size=8)
    assert not pacing.room(open_groups=4, committed_now=4, rollouts=0, size=8)
    assert not pacing.room(open_groups=0, committed_now=0, rollouts=93, size=8)
    assert pacing.room(open_groups=0, committed_now=0, rollouts=0, size=101), "a group that is larger comes alone"
    assert Pacing(groups=4, max_lag=None, unfinished=100).room(open_groups=1000, committed_now=0, rollouts=9, size=8)


@given(
    groups=st.integers(1, 6),
    max_lag=st.integers(0, 4),
    batches=st.integers(1, 3),
    seed=st.integers(0, 1_000_000),
)
def test_whatever_finishes_first_nothing_becomes_too_stale(groups: int, max_lag: int, batches: int, seed: int) -> None:
    """F3, F5: groups are asked for whenever there is room and finish in any order, a version has several batches."""
    chance = Random(seed)
    per_version = groups * batches
    pacing = Pacing(groups=per_version, max_lag=max_lag, unfinished=10_000)
    unfinished: list[int] = []
    """The versions at which they were asked for."""
    ready: list[int] = []
    for version in range(12):
        for taken in range(batches):
            batch: list[int] = []
            while not batch:
                while pacing.room(
                    open_groups=len(unfinished) + len(ready), committed_now=taken * groups, rollouts=0, size=1
                ):
                    unfinished.append(version)
                if unfinished:
                    ready.append(unfinished.pop(chance.randrange(len(unfinished))))
                guard = Guard(pacing, groups, version, taken * groups, unfinished + ready)
                chosen = [asked for asked in ready if guard.take(asked)][:groups]
                batch = chosen if len(chosen) == groups else []
            assert max(version - asked for asked in batch) <= max_lag
            for asked in batch:
                ready.remove(asked)
