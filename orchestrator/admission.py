"""How much may a trainer ask for, and what must it take first, so that nothing becomes too stale?

Pure. The rule is AReaL's, counted by version: groups that are unfinished, waiting or in a batch, and those committed
since the last policy version, are together at most (max_lag + 1) x groups, where `groups` are trained on between two
versions. So what is asked for now is reached after at most `max_lag` further versions, if what is older is taken
first. `Guard` sees to that where batches are taken as rollouts finish. Called by `trainer` and `feed`.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pacing:
    """The bound on unfinished work."""

    groups: int | None
    """That are trained on between two policy versions."""
    max_lag: int | None
    """Versions that a delivered group may be behind; None: any number."""
    unfinished: int
    """Rollouts that are unfinished at most, whatever the versions are."""

    def room(self, *, open_groups: int, committed_now: int, rollouts: int, size: int) -> bool:
        """Whether a further group of `size` rollouts may be asked for, where so many `rollouts` are unfinished."""
        if rollouts and rollouts + size > self.unfinished:
            return False
        return not self.full(open_groups=open_groups, committed_now=committed_now)

    def full(self, *, open_groups: int, committed_now: int) -> bool:
        """Whether no further group may be asked for at this policy version."""
        return self.bound is not None and open_groups + committed_now >= self.bound

    @property
    def bound(self) -> int | None:
        """Groups."""
        return None if self.groups is None or self.max_lag is None else (self.max_lag + 1) * self.groups


class Guard:
    """Says of one batch, made in any order, what may go into it so that all that is older can still be in time."""

    def __init__(self, pacing: Pacing, batch: int, version: int, used: int, undelivered: Iterable[int]) -> None:
        """For a batch of so many groups at a policy version at which `used` groups were delivered already.

        `undelivered` are the versions at which the groups were asked for that are still to be delivered, ended or not.
        """
        self._left = batch
        self._due: list[tuple[int, int]] = []
        """For each version: so many of the groups of this and older versions have to be in the batch."""
        if pacing.groups is None or pacing.max_lag is None:
            return
        later = max(0, pacing.groups - used - batch)
        older = 0
        for asked, count in sorted(Counter(undelivered).items()):
            older += count
            in_time = max(0, asked + pacing.max_lag - version) * pacing.groups + later
            self._due.append((asked, min(batch, max(0, older - in_time))))

    def take(self, asked: int) -> bool:
        """Takes a group that was asked for at this version, unless that leaves too few places for older ones."""
        if any(due >= self._left for version, due in self._due if version < asked and due):
            return False
        self._left -= 1
        self._due = [(version, due - (asked <= version and due > 0)) for version, due in self._due]
        return True
