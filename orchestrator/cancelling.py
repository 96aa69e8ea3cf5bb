"""Which rollouts does a trainer mean that it wants to be cancelled?

Pure. Called by `Trainer.cancel`, which cancels them.
"""

from math import inf

from contracts.ids import attempt_id
from orchestrator.delivered import Finished, Group
from orchestrator.groups import Groups
from orchestrator.submission import Place, member_id, place_of


def meant(
    run: str, groups: Groups, *, rollout: str | Finished | None = None, group: str | Group | None = None
) -> list[str]:
    """Their IDs; of a group, those that have not ended. Raises `ValueError` for what is none of this run's."""
    if rollout is not None and group is not None:
        raise ValueError("name a rollout or a group, not both")
    if rollout is not None:
        return [_rollout(run, groups, rollout)]
    name = group.id if isinstance(group, Group) else group
    if not isinstance(name, str) or name not in groups.sizes:
        raise ValueError(f"{name!r} is no group of run {run!r}")
    found = groups.open.get(name)
    return [member.rollout for member in found.unfinished] if found is not None else []


def _rollout(run: str, groups: Groups, rollout: str | Finished) -> str:
    name = rollout.rollout_id if isinstance(rollout, Finished) else rollout
    place = place_of(run, name) if isinstance(name, str) else None
    size = groups.sizes.get(place.group) if place is not None else None
    if (
        place is None
        or size is None
        or (size and place.number >= size)  # 0: the log says the size no more
        or name != _named(place)
        or place.attempt > _attempts(run, groups, place)
    ):
        raise ValueError(f"{name!r} is no rollout of run {run!r}")
    return name


def _named(place: Place) -> str:
    first = member_id(place.group, place.number)
    return attempt_id(first, place.attempt) if place.attempt else first


def _attempts(run: str, groups: Groups, place: Place) -> float:
    """The number of its latest attempt; of what was committed or dropped, it is not known any more."""
    found = groups.open.get(place.group)
    latest = place_of(run, found.members[place.number].rollout) if found is not None else None
    return inf if latest is None else latest.attempt
