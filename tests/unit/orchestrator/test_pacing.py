"""A trainer's loop without a log: whatever it is set to and whatever finishes first, it is never stuck."""

from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.rollouts import ModelStats
from orchestrator.admission import Pacing
from orchestrator.batches import choose, worth_a_look
from orchestrator.groups import End, Groups, Unit
from orchestrator.submission import new_group
from orchestrator.trainer_options import PATIENCE_S, FeedOptions, Order

START = datetime(2025, 1, 1, tzinfo=UTC)


def options(
    *,
    groups: int | None = None,
    rollouts: int | None = None,
    tokens: int | None = None,
    order: Order = "finish",
    max_lag: int | None = None,
) -> FeedOptions:
    return FeedOptions(
        groups=groups,
        rollouts=rollouts,
        tokens=tokens,
        order=order,
        max_lag=max_lag,
        drop_zero_variance=False,
        straggler_s=None,
        patience_s=PATIENCE_S,
    )


@dataclass
class Loop:
    """Asks whenever there is room, takes whenever there is a batch; else a rollout ends."""

    pacing: Pacing
    chosen: FeedOptions
    size: int
    chance: Random
    batches: int = 1
    """That are trained on at each version."""
    ahead: int = 0
    """So many more are taken before they are trained on, if they are there."""
    commits_late: bool = False
    """After the next version was announced."""
    groups: Groups = field(default_factory=Groups)
    version: int = 0
    judged: int = -1
    asked: int = 0
    stale: int = 0
    lags: set[int] = field(default_factory=set)
    """At training."""
    in_hand: deque[list[Unit]] = field(default_factory=deque)

    def run(self, versions: int) -> None:
        """Trains through so many versions."""
        for self.version in range(versions):
            trained = [self.train() for _ in range(self.batches)]
            if not self.commits_late:
                self.commit(trained)
            self.groups.end_version(self.pacing.groups)
            if self.commits_late:
                self.commit(trained)

    def train(self) -> list[Unit]:
        while len(self.in_hand) <= self.ahead and self.take(must=not self.in_hand):
            pass
        units = self.in_hand.popleft()
        self.lags |= {self.version - unit.oldest for unit in units}
        return units

    def commit(self, trained: list[list[Unit]]) -> None:
        for units in trained:
            self.groups.remove(units, trained=True)

    def take(self, *, must: bool) -> bool:
        """Whether there was a batch; one that must be is waited for."""
        while True:
            while self.pacing.room(self.groups, self.size):
                self.ask()
            units: list[Unit] = []
            useless: dict[str, list[Unit]] = {}
            if worth_a_look(self.groups, self.chosen, final=False, judged=self.judged == self.version):
                self.judged = self.version
                units, useless = choose(self.groups, self.chosen, self.pacing, self.version, final=False)
            if useless:
                assert useless.keys() == {"stale"}
                self.stale += sum(len(unit.members) for unit in useless["stale"])
                self.groups.remove(useless["stale"], trained=False)
            elif units:
                self.groups.deliver(units)
                self.in_hand.append(units)
                return True
            elif self.groups.unfinished and (must or self.chance.random() < 0.8):
                self.end()
            else:
                assert not must, f"stuck at version {self.version}"
                return False

    def ask(self) -> None:
        self.asked += 1
        asked = START + timedelta(seconds=self.asked)
        name = f"run-e0-{self.asked:016x}"
        self.groups.add(
            new_group(name, agent="solver", task_index=0, epoch=0, version=self.version, asked=asked, size=self.size)
        )

    def end(self) -> None:
        """A rollout ends, rather one of those that were asked for last: what is slow stays behind."""
        unfinished = self.groups.unfinished
        group = unfinished[-1] if self.chance.random() < 0.7 else self.chance.choice(unfinished)
        member = self.chance.choice(group.unfinished)
        trained = ModelStats(generated=self.chance.randint(1, 30), captured=1)
        self.groups.end(group, member, End("rollout.completed", 1.0, "", "", None, START, trained))


@settings(max_examples=40)
@given(
    groups=st.integers(1, 4),
    max_lag=st.integers(0, 3),
    size=st.integers(1, 5),
    rollouts=st.integers(1, 24),
    order=st.sampled_from(get_args(Order)),
    seed=st.integers(0, 1_000_000),
)
def test_batches_of_rollouts_are_never_stuck_and_throw_away_only_what_settings_say(  # noqa: PLR0917 - hypothesis names them
    groups: int, max_lag: int, size: int, rollouts: int, order: Order, seed: int
) -> None:
    """F1, F3, F5: stale is what is trained on less often than was said, or with a bound of 0 what a group has left."""
    chosen = options(rollouts=rollouts, order=order, max_lag=max_lag)
    loop = Loop(Pacing(groups, max_lag, 10_000).of_feed(chosen), chosen, size, Random(seed))
    loop.run(8)
    assert max(loop.lags) <= max_lag
    if rollouts >= groups * size and (max_lag or rollouts % size == 0):
        assert loop.stale == 0


@settings(max_examples=40)
@given(
    groups=st.integers(1, 5),
    max_lag=st.integers(0, 3),
    batch=st.integers(1, 6),
    batches=st.integers(1, 2),
    ahead=st.integers(0, 20),
    commits_late=st.booleans(),
    order=st.sampled_from(get_args(Order)),
    seed=st.integers(0, 1_000_000),
)
def test_batches_of_groups_are_never_stuck_also_larger_ones_than_was_said(  # noqa: PLR0917 - hypothesis names them
    groups: int, max_lag: int, batch: int, batches: int, ahead: int, commits_late: bool, order: Order, seed: int
) -> None:
    """F1, F3, F5: a version has one batch of any size, or several that are together what was said.

    They may be taken ahead of training, and committed after the version was announced that they made.
    """
    chosen = options(groups=batch, order=order, max_lag=max_lag)
    several = batches > 1
    pacing = Pacing(batch * batches if several else groups, max_lag, 10_000).of_feed(chosen)
    loop = Loop(pacing, chosen, 2, Random(seed), batches, ahead, commits_late)
    loop.run(8)
    as_said = several or batch >= groups
    if as_said or not ahead:
        assert max(loop.lags) <= max_lag
    if as_said:
        assert loop.stale == 0


@settings(max_examples=40)
@given(
    groups=st.integers(1, 4),
    max_lag=st.integers(0, 3),
    tokens=st.integers(1, 400),
    order=st.sampled_from(get_args(Order)),
    seed=st.integers(0, 1_000_000),
)
def test_batches_of_tokens_are_never_stuck(groups: int, max_lag: int, tokens: int, order: Order, seed: int) -> None:
    """F1, F3: nothing too stale either; how many groups a batch has differs, so some may have to be thrown away."""
    chosen = options(tokens=tokens, order=order, max_lag=max_lag)
    loop = Loop(Pacing(groups, max_lag, 10_000).of_feed(chosen), chosen, 2, Random(seed))
    loop.run(8)
    assert max(loop.lags) <= max_lag


def test_with_max_lag_somebody_has_to_say_how_many_groups_a_version_takes() -> None:
    """For batches of groups their size does; of rollouts and tokens nobody knows how many groups they are."""
    loose = Pacing(None, None, 100)
    assert loose.of_feed(options(groups=4, max_lag=1)).bound == 8
    assert loose.of_feed(options(rollouts=4)).bound is None
    for chosen in (options(rollouts=4, max_lag=1), options(tokens=4, max_lag=1)):
        with pytest.raises(ValueError, match=r"need connect\(groups=…\): as many groups as you train on between two"):
            loose.of_feed(chosen)
