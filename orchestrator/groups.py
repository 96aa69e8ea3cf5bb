"""Which groups of a trainer's run are there, and what has become of their rollouts?

Pure. `run_log` fills it from the log, `trainer` admits by its counts, `feed` takes batches from it. It knows nothing of
what a rollout said: only how it ended.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from itertools import islice
from typing import NamedTuple

from contracts.events import Outcome
from contracts.rollouts import ModelStats, RolloutStats


class End(NamedTuple):
    """How a rollout ended."""

    outcome: Outcome
    reward: float | None
    """None where it failed or was cancelled."""
    error: str
    """Kind of the error, empty where there is a reward."""
    message: str
    stats: RolloutStats | None
    time: datetime
    trained: ModelStats = ModelStats()
    """Of `stats`, what is of the models that are trained."""

    @property
    def trainable(self) -> bool:
        """Whether there is a reward, and a token to give it to."""
        return self.reward is not None and self.trained.captured > 0


@dataclass(slots=True)
class Member:
    """One rollout of a group."""

    index: int
    rollout: str
    """ID of its latest attempt."""
    end: End | None = None
    taken: bool = False
    """It is in a batch, or gone."""
    gone: bool = False
    """It was committed or dropped."""
    earlier: bool = False
    """It was in a batch that was trained on at an earlier policy version, committed or not."""


@dataclass(slots=True, eq=False)
class OpenGroup:
    """A group of which not all is committed or dropped."""

    id: str
    agent: str
    task_index: int
    epoch: int
    version: int
    """The policy version when it was asked for."""
    asked: datetime
    members: list[Member]
    overtaken: datetime | None = None
    """Since when it was seen that nothing of it has ended, but something of a group that was asked for later."""

    @property
    def ended(self) -> bool:
        """Whether all of its rollouts have."""
        return all(member.end is not None for member in self.members)

    @property
    def first_end(self) -> datetime | None:
        """When the first of its rollouts ended."""
        return min((member.end.time for member in self.members if member.end is not None), default=None)

    def versions(self, member: Member) -> tuple[int, int]:
        """The oldest and the newest policy version that generated a rollout, of the models that are trained.

        Where none is known, the one when it was asked for.
        """
        known = member.end.trained.policy if member.end is not None else None
        return known or (self.version, self.version)

    def first_id(self, member: Member) -> str:
        """The rollout ID of a member's first attempt."""
        return f"{self.id}-{member.index:02d}"

    @property
    def unfinished(self) -> list[Member]:
        """The rollouts that have not ended."""
        return [member for member in self.members if member.end is None]

    @property
    def left(self) -> tuple[Member, ...]:
        """The rollouts that are not delivered."""
        return tuple(member for member in self.members if not member.taken)


@dataclass(frozen=True, slots=True)
class Unit:
    """What goes into a batch as one: what is left of a group that has ended, or a single rollout."""

    group: OpenGroup
    members: tuple[Member, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """What a record calls it: the group's ID where it is the whole of it, else the rollouts' first IDs."""
        if len(self.members) == len(self.group.members):
            return (self.group.id,)
        return tuple(self.group.first_id(member) for member in self.members)

    @property
    def tokens(self) -> int:
        """Generated tokens, of the models that are trained."""
        return sum(member.end.trained.generated for member in self.members if member.end is not None)

    @property
    def completed(self) -> list[Member]:
        """The rollouts that have a reward."""
        return [member for member in self.members if member.end is not None and member.end.reward is not None]

    @property
    def untrainable(self) -> list[Member]:
        """Of these, the ones of which no token was captured."""
        return [member for member in self.completed if member.end is not None and not member.end.trainable]

    @property
    def oldest(self) -> int:
        """The oldest policy version that generated any token that can be trained on.

        A rollout in which no model that is trained was called has none; if all are such, the one when it was asked for.
        """
        oldest = [self.group.versions(member)[0] for member in self.completed if _called(member)]
        return min(oldest, default=self.group.version)

    @property
    def newest(self) -> int:
        """The newest policy version that is known to have generated any token that can be trained on; -1 if none is.

        Not the one when it was asked for: that was announced, if by another trainer and for other models.
        """
        known = [member.end.trained.policy for member in self.completed if member.end is not None]
        return max((policy[1] for policy in known if policy is not None), default=-1)


def _called(member: Member) -> bool:
    """Whether a model that is trained has said anything in it."""
    return member.end is not None and (member.end.trained.policy is not None or member.end.trained.captured > 0)


def in_groups(rollouts: Mapping[int, int]) -> Fraction:
    """So many groups are rollouts, which are counted by the size of their group: half of one counts as a half."""
    return sum((Fraction(count, size) for size, count in rollouts.items()), Fraction(0))


@dataclass(slots=True)
class Groups:
    """All groups of a run."""

    sizes: dict[str, int] = field(default_factory=dict)
    """By the ID of each that was ever asked for: how many rollouts it has; 0 where the log does not say so any more."""
    open: dict[str, OpenGroup] = field(default_factory=dict)
    """By ID: those of which something is not committed or dropped."""
    ready: dict[str, OpenGroup] = field(default_factory=dict)
    """Of these, the ones that have ended, of which something is still to be delivered; in the order of their ends."""
    ended: dict[str, Unit] = field(default_factory=dict)
    """By the first ID of the rollout: those that have ended and are not delivered, in the order of their ends."""
    unfinished_groups: int = 0
    unfinished_rollouts: int = 0
    uncommitted: Counter[int] = field(default_factory=Counter)
    """Rollouts that are neither committed nor dropped, by the size of their group."""
    committed_now: Counter[int] = field(default_factory=Counter)
    """Rollouts that were committed at the present policy version and trained on at it, by the size of their group."""
    earlier: Counter[int] = field(default_factory=Counter)
    """Rollouts that were trained on at an earlier one and are not committed, by the size of their group."""
    batches: dict[str, Sequence[Unit]] = field(default_factory=dict)
    """What is in hand and was not trained on at an earlier version, by the name of its first unit."""
    to_deliver: Counter[int] = field(default_factory=Counter)
    """Rollouts that are in no batch yet, ended or not, by the size of their group."""
    groups_to_deliver: int = 0
    """Groups that have any of these."""
    arrived: int = 0
    """Rollouts whose end was heard."""
    newest_ended: datetime | None = None
    """When the newest of the groups was asked for of which anything has ended."""

    def add(self, group: OpenGroup) -> None:
        """A group is asked for, of which nothing has ended."""
        self.sizes[group.id] = len(group.members)
        self.open[group.id] = group
        self.unfinished_groups += 1
        self.unfinished_rollouts += len(group.members)
        self._count(group, 1)

    def forget(self, group: OpenGroup) -> None:
        """It is not known whether it was asked for."""
        self.sizes.pop(group.id, None)
        if self.open.pop(group.id, None) is not None:
            self.unfinished_groups -= not group.ended
            self.unfinished_rollouts -= len(group.unfinished)
            self.ready.pop(group.id, None)
            self._count(group, -1)

    def _count(self, group: OpenGroup, sign: int) -> None:
        size = len(group.members)
        self.uncommitted[size] += sign * sum(not member.gone for member in group.members)
        self.to_deliver[size] += sign * len(group.left)
        self.groups_to_deliver += sign * bool(group.left)

    def end(self, group: OpenGroup, member: Member, end: End) -> None:
        """A rollout of an open group has ended, the first time that this is said."""
        member.end = end
        self.newest_ended = group.asked if self.newest_ended is None else max(self.newest_ended, group.asked)
        self.unfinished_rollouts -= 1
        self.arrived += 1
        if not member.taken:
            self.ended[group.first_id(member)] = Unit(group, (member,))
        if group.ended:
            self.unfinished_groups -= 1
            if group.left:
                self.ready[group.id] = group

    def units(self, *, single: bool) -> Iterator[Unit]:
        """What can be delivered, in the order of ends: whole groups, or with `single` each rollout that has ended."""
        if single:
            return iter(self.ended.values())
        return (Unit(group, group.left) for group in self.ready.values())

    def latest(self, count: int, *, single: bool) -> Iterator[Unit]:
        """The last so many of these, the newest first."""
        if single:
            return islice(reversed(self.ended.values()), count)
        return (Unit(group, group.left) for group in islice(reversed(self.ready.values()), count))

    def undelivered(self, *, single: bool) -> Counter[int]:
        """What is still to be delivered, ended or not: groups, or with `single` rollouts, by version when asked for."""
        versions: Counter[int] = Counter()
        for group in self.open.values():
            if left := len(group.left):
                versions[group.version] += left if single else 1
        return versions

    def deliver(self, units: Sequence[Unit]) -> None:
        """They are a batch."""
        self._take(units)
        self.batches[units[0].names[0]] = units

    def _take(self, units: Iterable[Unit]) -> None:
        for unit in units:
            group = unit.group
            for member in unit.members:
                if member.taken:
                    continue
                member.taken = True
                self.ended.pop(group.first_id(member), None)
                self.to_deliver[len(group.members)] -= 1
                if not group.left:
                    self.groups_to_deliver -= 1
                    self.ready.pop(group.id, None)

    def remove(self, units: Sequence[Unit], *, trained: bool) -> None:
        """They are committed, or dropped and not trained on."""
        self._take(units)
        for unit in units:
            self.batches.pop(unit.names[0], None)
            size = len(unit.group.members)
            for member in unit.members:
                if member.gone:
                    continue
                member.gone = True
                self.uncommitted[size] -= 1
                self.earlier[size] -= member.earlier
                self.committed_now[size] += trained and not member.earlier
            if all(member.gone for member in unit.group.members):
                self.open.pop(unit.group.id, None)

    def end_version(self, share: int | None) -> None:
        """The policy version has risen; at the one before, so many groups were trained on, or nobody knows how many.

        A trainer may commit after it has announced, and may have more in hand than it has trained on: of its batches,
        the first ones are of the version that has ended, until they and what was committed are its share.
        """
        trained = in_groups(self.committed_now)
        self.committed_now.clear()
        for name, units in list(self.batches.items()):
            if share is not None and trained >= share:
                break
            del self.batches[name]
            for unit in units:
                size = len(unit.group.members)
                for member in unit.members:
                    member.earlier = True
                self.earlier[size] += len(unit.members)
                trained += Fraction(len(unit.members), size)

    @property
    def in_hand(self) -> Counter[int]:
        """Rollouts in batches that are trained on at this version or later, by the size of their group."""
        return self.uncommitted - self.to_deliver - self.earlier

    @property
    def unfinished(self) -> list[OpenGroup]:
        """Groups of which some rollout has not ended."""
        return [group for group in self.open.values() if not group.ended]

    @property
    def waiting(self) -> int:
        """Groups that have ended and are not committed."""
        return len(self.open) - self.unfinished_groups
