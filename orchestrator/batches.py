"""What goes into a trainer's next batch?

Pure. Takes finished groups, or single rollouts, in one of two orders until the batch is full, and names what it comes
across that is too stale or teaches nothing. Called by `feed`; it changes nothing.
"""

from collections.abc import Iterable
from math import ceil
from typing import Any, NamedTuple, cast

from orchestrator.admission import Guard, Pacing
from orchestrator.advantages import without_variance
from orchestrator.groups import Groups, OpenGroup, Unit, in_groups
from orchestrator.trainer_options import FeedOptions


class Choice(NamedTuple):
    """What was found."""

    units: list[Unit]
    """The batch; empty as long as it is not full."""
    useless: dict[str, list[Unit]]
    """What is to be dropped before anything else, by reason."""


def useless_among(groups: Groups, options: FeedOptions, version: int, arrived: int) -> dict[str, list[Unit]]:
    """What is to be dropped, by reason, of what the last so many rollouts that ended have made whole."""
    useless: dict[str, list[Unit]] = {}
    for unit in groups.latest(arrived, single=options.single):
        if (reason := _useless(unit, options, version)) is not None:
            useless.setdefault(reason, []).append(unit)
    return useless


def worth_a_look(groups: Groups, options: FeedOptions, *, final: bool, judged: bool) -> bool:
    """Whether there may be a batch, or something that must not wait for one before it is dropped.

    `judged` says that what waited was looked at before at this policy version: fewer than a batch, they are looked at
    once more only when nothing else ends, since they may be many.
    """
    if final:
        return True
    if options.max_lag is not None and not (judged and groups.unfinished_rollouts):
        return True
    return len(groups.ended) >= options.rollouts if options.rollouts else len(groups.ready) >= (options.groups or 1)


def choose(groups: Groups, options: FeedOptions, pacing: Pacing, version: int, *, final: bool) -> Choice:
    """The next batch at a policy version; `final` says that what is there is all that will ever be there."""
    size = options.groups or options.rollouts
    guard = None if final or options.order == "fifo" else _guard(groups, options, pacing, version)
    chosen: list[Unit] = []
    useless: dict[str, list[Unit]] = {}
    tokens, early = 0, False
    for unit in _in_order(groups, options, pacing, final=final):
        if (reason := _useless(unit, options, version)) is not None:
            useless.setdefault(reason, []).append(unit)
            continue
        if is_early(unit, options, version):
            early = True
            if options.order == "fifo":
                break
            continue
        if guard is not None and not guard.take(unit.group.version):
            continue
        if options.tokens is not None and chosen and tokens + unit.tokens > options.tokens:
            return Choice(chosen, useless)
        chosen.append(unit)
        tokens += unit.tokens
        if len(chosen) == size or (options.tokens is not None and tokens >= options.tokens):
            return Choice(chosen, useless)
    # nothing more comes before the trainer has trained on what is there, or ever
    waited_for = options.tokens is not None and pacing.full(groups) and not groups.unfinished_rollouts
    return Choice(chosen if waited_for or (final and not early) else [], useless)


def is_early(unit: Unit, options: FeedOptions, version: int) -> bool:
    """Whether an engine has newer weights than were announced: how stale its tokens are is not known until then."""
    return options.max_lag is not None and unit.newest > version


def _in_order(groups: Groups, options: FeedOptions, pacing: Pacing, *, final: bool) -> Iterable[Unit]:
    """What can be delivered, in the order in which it is taken."""
    units = groups.units(single=options.single)
    if options.order == "finish" and not (final and pacing.bound is not None):
        return units
    ordered = sorted(units, key=lambda unit: (_dispatched(unit.group), unit.members[0].index))
    return _before_unfinished(ordered, groups.unfinished, single=options.single)


def _useless(unit: Unit, options: FeedOptions, version: int) -> str | None:
    if options.max_lag is not None and unit.completed and version - unit.oldest > options.max_lag:
        return "stale"
    if options.single:
        return None  # who puts groups together waits for it, as for one that failed
    if unit.completed and all(member.end is not None and member.end.trained.token_less for member in unit.completed):
        return "token_less"
    if not options.drop_zero_variance:
        return None
    if not unit.completed:
        return "no_reward"
    rewards = [member.end.reward for member in unit.completed if member.end is not None]
    return "zero_variance" if without_variance(cast("list[float]", rewards)) else None


def _guard(groups: Groups, options: FeedOptions, pacing: Pacing, version: int) -> Guard | None:
    """For batches in the order of ends, where it is bounded how stale they may be.

    How many groups make a batch of tokens is not known: it has the places of all that are trained on before the next
    version. That at least a batch is trained on before it is known of the others.
    """
    if pacing.groups is None or pacing.max_lag is None:
        return None
    delivered = groups.committed_now + groups.in_hand
    if options.rollouts is not None:
        used, batch = delivered.total(), options.rollouts
        per_version = pacing.groups * min(+groups.to_deliver, default=1)
    else:
        used, per_version = ceil(in_groups(delivered)), pacing.groups
        batch = options.groups or max(1, per_version - used)
    return Guard(
        batch=batch,
        per_version=max(per_version, batch),
        max_lag=pacing.max_lag,
        version=version,
        used=used,
        undelivered=groups.undelivered(single=options.single),
    )


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
