"""What does a verifier's new score change, and how does it get into the log?

Called by `replay reverify`. A new score is appended as a revision under the next number of its rollout, first writer
wins, and nothing that stands is touched. Where the agent's code made another reward of the verifier's, it is run again
on the new one.
"""

from collections.abc import Iterable
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

    def numbered(self, revision: int) -> "Rescore":
        """The same, written."""
        return msgspec.structs.replace(self, revision=revision)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One rollout whose reward changed, within its group."""

    rollout_id: str
    was: float | None
    reward: float | None
    advantages: tuple[float | None, float | None]
    """Reward minus the group's mean, before and now."""

    @property
    def flips(self) -> bool:
        """Whether it was better than its group and is worse now, or the other way round."""
        one, other = self.advantages
        return one is not None and other is not None and one * other < 0


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


def changed(scores: Iterable[Rescore], *, whole: bool = True) -> list[Change]:
    """The rollouts whose reward changed, with their advantages, those whose advantage flips its sign first.

    `whole` says that all of each group are there; else no advantage is told.
    """
    groups: dict[str, list[Rescore]] = {}
    for score in scores:
        if score.was is not None:
            groups.setdefault(score.group if whole else score.rollout_id, []).append(score)
    found = []
    for members in groups.values():
        before = _mean([member.was for member in members])
        now = _mean([_now(member) for member in members])
        found += [
            Change(
                rollout_id=member.rollout_id,
                was=member.was,
                reward=_now(member),
                advantages=(_minus(member.was, before), _minus(_now(member), now)) if whole else (None, None),
            )
            for member in members
            if member.verdict == "differs" or (whole and _minus(member.was, before) != _minus(_now(member), now))
        ]
    return sorted(found, key=lambda change: not change.flips)


def _now(score: Rescore) -> float | None:
    """The reward that counts from now on."""
    return score.was if score.reward is None else score.reward


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


def _mean(rewards: list[float | None]) -> float | None:
    known = [reward for reward in rewards if reward is not None]
    return fmean(known) if known else None


def _minus(reward: float | None, mean: float | None) -> float | None:
    return None if reward is None or mean is None else reward - mean
