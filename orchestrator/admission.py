"""How much may a trainer ask for, and what must it take first, so that nothing becomes too stale?

Pure. The rule is AReaL's, counted by version: groups that are unfinished, waiting or in a batch, and those committed
since the last policy version, are together at most (max_lag + 1) x groups, where `groups` are trained on between two
versions; of a group that is taken in parts, what is left counts as a part. So what is asked for now is reached after at
most `max_lag` further versions, if what is older is taken first. `Guard` sees to that where batches are taken as
rollouts finish. Called by `trainer` and `batches`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.errors import UsageError
from orchestrator.groups import Groups, in_groups
from orchestrator.trainer_options import FeedOptions


@dataclass(frozen=True, slots=True)
class Pacing:
    """The bound on unfinished work."""

    groups: int | None
    """That are trained on between two policy versions."""
    max_lag: int | None
    """Versions that a delivered group may be behind; None: any number."""
    unfinished: int
    """Rollouts that are unfinished at most, whatever the versions are."""
    batch_groups: int | None = None
    """Of a batch, where batches are counted in groups."""
    batch_rollouts: int | None = None
    """Of a batch, where batches are counted in rollouts."""

    def of_feed(self, options: FeedOptions) -> "Pacing":
        """What becomes of it with a feed; raises `ValueError` where nobody knows how many groups a version takes."""
        groups = self.groups or options.groups
        if options.max_lag is not None and groups is None:
            raise ValueError(
                "with max_lag, batches of rollouts or tokens need connect(groups=…): as many groups as you train on "
                "between two policy versions, rounded down"
            )
        return Pacing(groups, options.max_lag, self.unfinished, options.groups, options.rollouts)

    def check(self) -> None:
        """Raises `UsageError` where a bound was given that bounds nothing: it is not known how much a version takes."""
        if self.max_lag is not None and self.groups is None:
            raise UsageError(
                "with max_lag, how much may be asked for follows from how many groups you train on between two policy "
                "versions: say it with connect(groups=…), or make the feed before you submit"
            )

    def room(self, groups: Groups, size: int) -> bool:
        """Whether a further group of `size` rollouts may be asked for."""
        rollouts = groups.unfinished_rollouts
        if rollouts and rollouts + size > self.unfinished:
            return False
        return not self.full(groups)

    def full(self, groups: Groups) -> bool:
        """Whether no further group may be asked for at this policy version."""
        if self.bound is None or in_groups(groups.uncommitted) + in_groups(groups.committed_now) + 1 <= self.bound:
            return False
        return not self._short(groups)

    def _short(self, groups: Groups) -> bool:
        """Whether all that there is does not fill the first batch of this policy version.

        Then more can be asked for whatever the bound is: everything that is older goes into this batch.
        """
        if groups.committed_now.total() or groups.in_hand.total():
            return False
        if self.batch_rollouts is not None:
            return groups.to_deliver.total() < self.batch_rollouts
        return self.batch_groups is not None and groups.groups_to_deliver < self.batch_groups

    def crowded(self, groups: Groups) -> bool:
        """Whether what was trained on at earlier versions, and is not committed, leaves no place to ask for more."""
        if self.bound is None or self.groups is None:
            return False
        kept = in_groups(groups.earlier)
        return kept >= self.bound and kept > self.groups

    @property
    def bound(self) -> int | None:
        """Groups."""
        return None if self.groups is None or self.max_lag is None else (self.max_lag + 1) * self.groups


class Guard:
    """Says of one batch, made in any order, what may go into it so that all that is older can still be in time.

    It counts in what batches are counted in, groups or rollouts.
    """

    def __init__(
        self, *, batch: int, per_version: int, max_lag: int, version: int, used: int, undelivered: Mapping[int, int]
    ) -> None:
        """For a batch of so many at a policy version for which `used` were delivered already, of `per_version`.

        More than that are trained on at later versions, and have places of theirs.
        `undelivered` says how many are still to be delivered, ended or not, by the version when they were asked for.
        """
        self._left = batch
        self._due: list[tuple[int, int]] = []
        """For each version: so many of this and older versions have to be in the batch."""
        later = per_version - used - batch
        older = 0
        for asked, count in sorted(undelivered.items()):
            older += count
            in_time = max(0, max(0, asked + max_lag - version) * per_version + later)
            self._due.append((asked, min(batch, max(0, older - in_time))))

    def take(self, asked: int) -> bool:
        """Takes one that was asked for at this version, unless that leaves too few places for older ones."""
        if any(due >= self._left for version, due in self._due if version < asked and due):
            return False
        self._left -= 1
        self._due = [(version, due - (asked <= version and due > 0)) for version, due in self._due]
        return True
