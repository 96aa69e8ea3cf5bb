"""What does a trainer hear when a batch does not fill, and what can be done about it?

Makes the error only; when it is raised, `feed` decides.
"""

from collections.abc import Mapping
from typing import Final

from orchestrator.batches import is_early
from orchestrator.errors import FeedStarved
from orchestrator.feed_view import FeedView
from orchestrator.groups import in_groups
from orchestrator.patience import Patience
from orchestrator.trainer_options import FeedOptions

NAMED: Final = 10
"""So many missing rollouts are named in a message; the error has all of them."""

_REMEDY: Final = {
    "stale": "give connect(groups=…) no more groups than you train on between two versions, or allow a larger max_lag",
    "token_less": "`flawed` in the stats of a rollout's line counts the calls whose tokens were refused",
    "zero_variance": "the rollouts of each task are all rewarded alike: take other tasks, or leave "
    "drop_zero_variance out",
}


def starved(view: FeedView, options: FeedOptions, dropped: Mapping[str, int], patience: Patience) -> FeedStarved:
    """The error of a wait that is over; `dropped` is what the feed has dropped in all, by reason."""
    groups, pacing = view.groups, view.pacing
    size, what = next(
        (size, what)
        for size, what in ((options.groups, "groups"), (options.rollouts, "rollouts"), (options.tokens, "tokens"))
        if size is not None
    )
    missing = [member.rollout for group in groups.unfinished for member in group.unfinished]
    waits = f"{len(groups.ended)} rollouts wait" if options.single else f"{len(groups.ready)} groups wait"
    why = (
        "too many groups in a row were of no use" if patience.exhausted
        else f"nothing that it lacks has come for {options.patience_s:g} s (patience_s)"
    )  # fmt: skip
    told = [f"no batch of {size} {what}: {why}; {waits}, {len(missing)} rollouts have not ended"]
    if missing:
        told.append(f"missing: {', '.join(missing[:NAMED])}{', …' if len(missing) > NAMED else ''}")
    if early := [unit.newest for unit in groups.units(single=options.single) if is_early(unit, options, view.version)]:
        told.append(
            f"{len(early)} of what has ended is of policy version {max(early)}, and {view.version} was announced "
            f"last: call policy_updated with the version that the engine has, or leave max_lag out"
        )
    if view.bus.log_full:
        told.append("the log is full, and everything waits for room in it: `jetgym log prune` or `jetgym log resize`")
    if dropped:
        told.append(f"rollouts dropped so far: {_counted(dropped)}")
    if patience.dropped:
        told.append(f"while this batch was awaited: {_counted(patience.dropped)}")
        told += [remedy for reason, remedy in _REMEDY.items() if patience.dropped[reason]]
    if patience.last_failed:
        told.append(f"the last that failed of these was {patience.last_failed}")
    if pacing.full(groups):
        committed, left = (round(float(in_groups(each)), 2) for each in (groups.committed_now, groups.uncommitted))
        told.append(
            f"nothing more is asked for at policy version {view.version}, since {committed:g} groups were "
            f"committed at it and {left:g} are open, of {pacing.bound}: commit what "
            f"you have, call policy_updated when the weights have changed, or give connect(groups=…) as many groups "
            f"as you train on between two versions"
        )
    elif not missing and not view.submitting:
        told.append("nothing is being submitted: submit more tasks, or say no_more_tasks() for a last, smaller one")
    return FeedStarved("; ".join(told), missing=missing, dropped=patience.dropped)


def _counted(dropped: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in sorted(dropped.items()))
