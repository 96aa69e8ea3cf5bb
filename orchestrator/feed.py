"""What goes into a trainer's next batch, and when?

Takes finished groups in one of two orders until the batch is full, and drops what is too stale or teaches nothing, each
with a record. What it delivers comes again after a crash unless it was committed. Made by `Trainer.feed`; it reads
nothing of the log: how a rollout ended says which policy versions it is of.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, cast, get_args

import structlog

from orchestrator.admission import Guard
from orchestrator.advantages import without_variance
from orchestrator.consumption import Consumption
from orchestrator.delivered import Batch, Finished, Group
from orchestrator.errors import FeedStarved
from orchestrator.feed_view import FeedView
from orchestrator.groups import Member, OpenGroup, Unit
from orchestrator.trainer_options import check_seconds, check_whole

PATIENCE_S = 3600.0
"""Seconds in which something must happen while a batch is awaited, unless something else is asked for."""
NAMED = 10
"""So many missing rollouts are named in a message; the error has all of them."""

_log = structlog.get_logger("feed")

Order = Literal["finish", "fifo"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedOptions:
    """How batches are made; see `Trainer.feed`. Exactly one of the first three says how large they are."""

    groups: int | None
    rollouts: int | None
    tokens: int | None
    order: Order
    max_lag: int | None
    drop_zero_variance: bool
    straggler_s: float | None
    patience_s: float

    def __post_init__(self) -> None:
        sizes = {"groups": self.groups, "rollouts": self.rollouts, "tokens": self.tokens}
        given = {name: size for name, size in sizes.items() if size is not None}
        if len(given) != 1:
            raise ValueError("say how large a batch is with one of groups, rollouts and tokens")
        for name, size in given.items():
            check_whole(name, size, 1)
        if self.order not in get_args(Order):
            raise ValueError(f"order is one of {', '.join(map(repr, get_args(Order)))}, not {self.order!r}")
        if self.max_lag is not None:
            check_whole("max_lag", self.max_lag, 0)
        if not isinstance(self.drop_zero_variance, bool):
            raise TypeError(f"drop_zero_variance is True or False, not {self.drop_zero_variance!r}")
        if self.rollouts is not None and self.drop_zero_variance:
            raise ValueError("drop_zero_variance compares the rollouts of a group: take groups or tokens")
        if self.straggler_s is not None:
            check_seconds("straggler_s", self.straggler_s)
        check_seconds("patience_s", self.patience_s)


class Feed:
    """Batches, one after the other: `async for batch in feed`."""

    def __init__(self, view: FeedView, options: FeedOptions, consumption: Consumption) -> None:
        self._view, self._options, self._consumption = view, options, consumption

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        """The next batch, whole; raises `FeedStarved`, `FeedTaken`, `BusError`.

        Ends when nothing more will be submitted and everything was delivered; the last batch may be smaller then.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.patience_s
        heard = self._view.bell.rings
        while True:
            if self._enough:
                chosen, useless = self._choose()
                if useless:
                    await self._consumption.drop(useless)
                    continue  # the version may have risen meanwhile
                if chosen:
                    return self._deliver(chosen)
            if self._over:
                raise StopAsyncIteration
            if self._view.bell.rings != heard:
                heard, deadline = self._view.bell.rings, loop.time() + self._options.patience_s
            try:
                async with asyncio.timeout_at(deadline):
                    await self._view.bell.wait()
            except TimeoutError:
                raise self._starved() from None

    @property
    def _final(self) -> bool:
        """Whether what is there now is all that will ever be there."""
        view = self._view
        return view.complete and not view.submitting and not view.groups.unfinished_rollouts

    @property
    def _single(self) -> bool:
        return self._options.rollouts is not None

    @property
    def _over(self) -> bool:
        groups = self._view.groups
        return self._final and not (groups.ended if self._single else groups.ready)

    @property
    def _enough(self) -> bool:
        """Whether it is worth a look."""
        options, groups = self._options, self._view.groups
        if self._final or options.drop_zero_variance:
            return True
        return len(groups.ended) >= options.rollouts if options.rollouts else len(groups.ready) >= (options.groups or 1)

    def _units(self) -> Iterable[Unit]:
        """What can be delivered, in the order in which it is taken."""
        groups = self._view.groups
        units = groups.units(single=self._single)
        oldest_first = self._options.order == "fifo" or (self._final and self._view.pacing.bound is not None)
        if not oldest_first:
            return units
        ordered = sorted(units, key=lambda unit: (_dispatched(unit.group), unit.members[0].index))
        return _before_unfinished(ordered, groups.unfinished, single=self._single)

    def _useless(self, unit: Unit) -> str | None:
        max_lag = self._options.max_lag
        if max_lag is not None and unit.completed and self._view.version - unit.oldest > max_lag:
            return "stale"
        if self._single:
            return None  # who puts groups together waits for it, as for one that failed
        if unit.completed and all(
            member.end is not None and member.end.trained.token_less for member in unit.completed
        ):
            return "token_less"
        if not self._options.drop_zero_variance:
            return None
        if not unit.completed:
            return "no_reward"
        rewards = [member.end.reward for member in unit.completed if member.end is not None]
        return "zero_variance" if without_variance(cast("list[float]", rewards)) else None

    def _early(self, unit: Unit) -> bool:
        """Whether an engine has newer weights than were announced: how stale its tokens are is not known until then."""
        return self._options.max_lag is not None and unit.newest > self._view.version

    def _choose(self) -> tuple[list[Unit], dict[str, list[Unit]]]:
        """The next batch, if it is full, or the last one; and what was come across that is of no use, by reason."""
        options = self._options
        size = options.groups or options.rollouts
        guard = self._guard()
        chosen: list[Unit] = []
        begun: set[str] = set()
        useless: dict[str, list[Unit]] = {}
        tokens, early = 0, False
        for unit in self._units():
            if (reason := self._useless(unit)) is not None:
                useless.setdefault(reason, []).append(unit)
                continue
            if self._early(unit):
                early = True
                if options.order == "fifo":
                    break
                continue
            if guard is not None and unit.group.id not in begun and not guard.take(unit.group.version):
                continue
            begun.add(unit.group.id)
            if options.tokens is not None and chosen and tokens + unit.tokens > options.tokens:
                return chosen, useless
            chosen.append(unit)
            tokens += unit.tokens
            if len(chosen) == size or (options.tokens is not None and tokens >= options.tokens):
                return chosen, useless
        last = (self._final and not early) or (options.tokens and self._waits_for_batch)
        return chosen if last else [], useless

    @property
    def _waits_for_batch(self) -> bool:
        """Whether nothing more comes before the trainer has trained on what is there."""
        return self._full and not self._view.groups.unfinished_rollouts

    @property
    def _full(self) -> bool:
        """Whether nothing more is asked for at this policy version."""
        groups = self._view.groups
        return self._view.pacing.full(open_groups=len(groups.open), committed_now=groups.committed_now)

    def _guard(self) -> Guard | None:
        """For batches in the order of ends, where it is bounded how stale they may be.

        How many groups make a batch of rollouts or of tokens is not known: it has the places of all that are trained on
        before the next version.
        """
        view, options = self._view, self._options
        if options.order == "fifo" or view.pacing.bound is None or self._final:
            return None
        used = view.groups.committed_now + view.groups.delivered_now
        batch = options.groups or max(1, (view.pacing.groups or 0) - used)
        return Guard(view.pacing, batch, view.version, used, view.groups.undelivered())

    def _deliver(self, units: Sequence[Unit]) -> Batch:
        self._view.groups.take(units)
        if not self._consumption.untrainable:  # else it was said
            self._warn(member for unit in units for member in unit.untrainable)
        return Batch(
            groups=tuple(self._group(unit) for unit in units),
            version=self._view.version,
            _units=tuple(units),
            _consumption=self._consumption,
        )

    def _warn(self, untrainable: Iterable[Member]) -> None:
        """Says of the first why there is nothing to train on; commits count them."""
        for member in untrainable:
            refused = member.end is not None and member.end.trained.token_less
            why = "were refused" if refused else "were not captured: set `token_ids: true` in the model's config"
            _log.warning("no_tokens", rollout=member.rollout, why=f"tokens of {', '.join(self._view.models)} {why}")
            break

    def _group(self, unit: Unit) -> Group:
        group = unit.group
        return Group(
            id=group.id,
            agent=group.agent,
            task_index=group.task_index,
            epoch=group.epoch,
            version=group.version,
            lag=max(0, self._view.version - unit.oldest),
            rollouts=tuple(self._finished(group, member) for member in unit.members),
        )

    def _finished(self, group: OpenGroup, member: Member) -> Finished:
        end = member.end
        assert end is not None
        return Finished(
            rollout_id=member.rollout,
            index=member.index,
            outcome=cast("Any", end.outcome.partition(".")[2]),
            reward=end.reward,
            error=end.error,
            message=end.message,
            versions=group.versions(member),
            tokens=end.trained.generated,
            stats=end.stats,
            trainable=end.trainable,
            _bus=self._view.bus,
            _run=self._view.run,
            _models=self._view.models,
        )

    def _starved(self) -> FeedStarved:
        view, options = self._view, self._options
        asked = (
            f"{options.groups} groups" if options.groups
            else f"{options.rollouts} rollouts" if options.rollouts
            else f"{options.tokens} tokens"
        )  # fmt: skip
        missing = [member.rollout for group in view.groups.unfinished for member in group.unfinished]
        ready = len(view.groups.ready)
        state = f"{ready} groups wait, {len(missing)} rollouts have not ended"
        told = [f"no batch of {asked}: nothing has happened for {options.patience_s:g} s (patience_s); {state}"]
        if missing:
            more = ", …" if len(missing) > NAMED else ""
            told.append(f"missing: {', '.join(missing[:NAMED])}{more}")
        if early := [unit.newest for unit in self._view.groups.units(single=self._single) if self._early(unit)]:
            told.append(
                f"{len(early)} of what has ended is of policy version {max(early)}, and {view.version} was announced "
                f"last: call policy_updated with the version that the engine has, or leave max_lag out"
            )
        if view.bus.log_full:
            told.append(
                "the log is full, and everything waits for room in it: `jetgym log prune` or `jetgym log resize`"
            )
        if dropped := self._consumption.dropped:
            reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(dropped.items()))
            told.append(f"rollouts dropped so far: {reasons}")
        if self._full:
            told.append(
                f"nothing more is asked for at policy version {view.version}, since {view.groups.committed_now} groups "
                f"were committed at it and {len(view.groups.open)} are open, of {view.pacing.bound}: call "
                f"policy_updated when the weights have changed, or give connect(groups=…) as many groups as you train "
                f"on between two versions"
            )
        elif not missing and not view.submitting:
            told.append("nothing is being submitted: submit more tasks, or say no_more_tasks() for a last, smaller one")
        return FeedStarved("; ".join(told), missing=missing)


def _dispatched(group: OpenGroup) -> tuple[Any, ...]:
    """A key that sorts groups as they were asked for."""
    return group.version, group.asked, group.id


def _before_unfinished(units: list[Unit], unfinished: Iterable[OpenGroup], *, single: bool) -> list[Unit]:
    """Those that were asked for before everything that has not ended; of single rollouts, by index in the group."""
    places = ((_dispatched(group), group.unfinished[0].index if single else 0) for group in unfinished)
    waits = min(places, default=None)
    if waits is None:
        return units
    return [unit for unit in units if (_dispatched(unit.group), unit.members[0].index) < waits]
