"""What does a verifier's new score change, and how does it get into the log?

Called by `replay reverify`. A new score is appended as a revision under the next number of its rollout, first writer
wins, and nothing that stands is touched. Where the agent's code made another reward of the verifier's, it is run again
on the new one.
"""

from collections.abc import Iterable, Sequence
from math import isclose
from statistics import fmean
from typing import Final, Literal

import msgspec

from bus import Bus, Conflict
from components.durable.history import SUB_CALL
from contracts.rollouts import Revised, RolloutResult
from replay.bulk import Bulk
from replay.edits import Edit
from replay.errors import ReplayError
from replay.fork import Changes, Plan
from replay.points import point
from replay.rescoring import Rescored, transformed, verify_call
from replay.trajectory import REVISED, Trajectory

_MOST: Final = 10_000
"""Revisions of one rollout that are looked past for a free number."""


class Rescore(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one rollout comes to now."""

    rollout_id: str
    group: str
    """What it is compared with: the rollouts with the same."""
    verdict: Literal["same", "differs", "could not run", "not scored"]
    """`not scored` where no verifier scored the rollout itself."""
    was: float | None = None
    """The reward that counted until now."""
    reward: float | None = None
    """What the verifier says now; None where it says nothing: then the reward stays."""
    reason: str = ""
    """Why it could not be run, or was not scored; or what tools raised while its session was made again."""
    revision: int = 0
    """Its number in the log; 0 where none was written."""
    advantages: tuple[float, float] | None = None
    """Reward minus the mean of its group, before and now; None where only a part of the group may be there."""
    flips: bool = False
    """Whether it was better than its group and is worse now, or the other way round."""

    @property
    def now(self) -> float | None:
        """The reward that counts from now on."""
        return self.was if self.reward is None else self.reward

    def numbered(self, revision: int) -> "Rescore":
        """The same, written."""
        return msgspec.structs.replace(self, revision=revision)


async def rescore(bulk: Bulk, trajectory: Trajectory) -> tuple[Rescore, Revised | None]:
    """What a rollout comes to now, and what to append; None where the verifier gives no reward."""
    found = Rescore(rollout_id=trajectory.rollout_id, group=group_of(trajectory), verdict="could not run")
    found = msgspec.structs.replace(found, was=trajectory.reward)
    if not isinstance(trajectory.outcome, RolloutResult):
        return msgspec.structs.replace(found, reason=f"it is {trajectory.state}: it has no response to score"), None
    if verify_call(trajectory) is None:
        return msgspec.structs.replace(found, verdict="not scored", reason=_unscored(trajectory)), None
    try:
        scored = await bulk.reverify(trajectory)
        if scored.reason:
            return msgspec.structs.replace(found, reason=scored.reason), None
        if scored.error is not None:
            told = "; ".join([f"{scored.error.kind}: {scored.error.message}", *scored.raised])
            return msgspec.structs.replace(found, reason=told), None
        reward = await _reward(bulk, trajectory, scored)
    except ReplayError as error:
        return msgspec.structs.replace(found, reason=str(error)), None
    assert scored.now is not None
    revised = Revised(
        reward=reward,
        was=trajectory.reward,
        extra=scored.now.extra,
        instance=scored.instance,
        implementation=scored.implementation,
        digest=scored.digest,
    )
    verdict: Literal["same", "differs"] = "same" if reward == trajectory.reward else "differs"
    return msgspec.structs.replace(found, verdict=verdict, reward=reward, reason="; ".join(scored.raised)), revised


async def append(bus: Bus, trajectory: Trajectory, revised: Revised) -> int:
    """Appends a revision; returns its number. Raises `BusError`."""
    for number in range(len(trajectory.revisions) + 1, _MOST):
        event = bus.event(
            REVISED,
            bus.subjects.revised(trajectory.request.run_id, trajectory.rollout_id, number),
            msgspec.json.encode(revised),
            rolloutid=trajectory.rollout_id,
            causationid=trajectory.ended.event.id if trajectory.ended is not None else "",
        )
        try:
            await bus.publish(event)
        except Conflict:
            continue  # somebody else's has the number
        return number
    raise ReplayError(f"rollout {trajectory.rollout_id} has {_MOST:,} revisions: that is enough")


def group_of(trajectory: Trajectory) -> str:
    """The group of a rollout: the one that a trainer named, else the repeats of its task by its agent in its run."""
    request = trajectory.request
    return request.group or f"{request.run_id}/{request.agent}/{request.task_index}"


def compared(scores: Sequence[Rescore]) -> list[Rescore]:
    """The same, each with its advantages: for scores among which all of each group are."""
    groups: dict[str, list[tuple[float, float]]] = {}
    for score in scores:
        if score.was is not None and score.now is not None:
            groups.setdefault(score.group, []).append((score.was, score.now))
    means = {group: tuple(map(fmean, zip(*rewards, strict=True))) for group, rewards in groups.items()}
    return [_within(score, *means.get(score.group, (0.0, 0.0))) for score in scores]


def changed(scores: Iterable[Rescore]) -> list[Rescore]:
    """Those whose reward or advantage changed, first those whose advantage changes its sign."""
    found = (score for score in scores if score.verdict == "differs" or len(set(score.advantages or ())) > 1)
    return sorted(found, key=lambda score: not score.flips)


def _within(score: Rescore, before: float, now: float) -> Rescore:
    if score.was is None or score.now is None:
        return score
    one, other = _advantage(score.was, before), _advantage(score.now, now)
    return msgspec.structs.replace(score, advantages=(one, other), flips=one * other < 0)


def _advantage(reward: float, mean: float) -> float:
    """A mean of equal numbers is not always exactly that number."""
    return 0.0 if isclose(reward, mean, rel_tol=1e-12) else reward - mean


def _unscored(trajectory: Trajectory) -> str:
    """Why there is nothing of the rollout's own to score."""
    under = [call.key.rpartition(SUB_CALL)[0] for call in trajectory.calls.values() if call.what == "verify"]
    called = sorted({trajectory.calls[key].instance for key in under if key in trajectory.calls})
    if not called:
        return "it has no answered call of a verifier"
    return f"its verifier was asked by an agent that it called ({', '.join(called)}), not by its own"


async def _reward(bulk: Bulk, trajectory: Trajectory, scored: Rescored) -> float:
    assert scored.now is not None
    if not transformed(trajectory, scored):
        return scored.now.reward
    edit = Edit(reply=msgspec.json.encode(scored.now))
    plan = Plan(trajectory, point(trajectory, scored.call), Changes(edit=edit))
    ahead = await bulk.upcoming(plan.trajectory())
    if ahead.result is None:
        raise ReplayError("the agent's code makes its reward of the verifier's, and does not come to one now")
    return ahead.result.reward
