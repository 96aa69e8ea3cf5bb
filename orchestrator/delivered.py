"""What does a trainer get to see of a batch, a group and a rollout?

Small things: what a rollout said and its tokens stay in the log until they are asked for. Made by `feed`.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from bus import Bus
from components.workers.contexts import response_of
from contracts.responses import Response
from contracts.rollouts import RolloutResult, RolloutStats
from orchestrator.advantages import group_advantages
from orchestrator.attempts import request_of_rollout
from orchestrator.errors import OrchestratorError
from orchestrator.groups import Unit
from orchestrator.results import read_outcome

if TYPE_CHECKING:
    from contracts.samples import RolloutSamples
    from orchestrator.consumption import Consumption

_LINE = msgspec.json.Decoder(dict[str, Any])
_RESULT = msgspec.json.Decoder(RolloutResult)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A rollout that has ended."""

    rollout_id: str
    index: int
    """In its group."""
    outcome: Literal["completed", "failed", "cancelled"]
    reward: float | None
    """None unless it completed: a failure is never a reward."""
    error: str
    """Kind of the error, empty where it completed."""
    message: str
    """Of the error: why it failed or was cancelled."""
    versions: tuple[int, int]
    """The oldest and the newest policy version that generated any of its tokens, or at which it was asked for.

    Here and below, tokens are those of the models that are trained.
    """
    tokens: int
    """Generated tokens that were captured; where none were, as many as the engines counted."""
    stats: RolloutStats | None
    trainable: bool
    """False where it has no reward, and where no token of it was captured, or all were refused."""
    _bus: Bus = field(repr=False)
    _run: str = field(repr=False)
    _models: tuple[str, ...] = field(repr=False)

    async def samples(self) -> "RolloutSamples":
        """The tokens of the models that are trained, with masks, log-probabilities and policy versions."""
        from orchestrator.samples import read_samples  # noqa: PLC0415 - numpy is loaded where it is used

        return await read_samples(self._bus, self.rollout_id, ended=True, models=self._models)

    async def response(self) -> Response:
        """The Responses object that it ended with; raises `OrchestratorError` where it did not complete."""
        recorded = await self._bus.last(self._bus.subjects.ended(self._run, self.rollout_id))
        if recorded is None or recorded.event.type != "rollout.completed":
            raise OrchestratorError(f"rollout {self.rollout_id} has no response: {self.error}: {self.message}")
        result = _RESULT.decode(await self._bus.fetch_data(recorded.event))
        return Response.model_validate_json(bytes(await response_of(self._bus, self.rollout_id, result)))

    async def line(self) -> dict[str, Any]:
        """Its line as it stands in `rollouts.jsonl`, or in `failures.jsonl`."""
        recorded = await self._bus.last(self._bus.subjects.ended(self._run, self.rollout_id))
        if recorded is None:
            raise OrchestratorError(f"the end of rollout {self.rollout_id} was deleted from the log")
        _, request = await request_of_rollout(self._bus, self.rollout_id)
        return _LINE.decode((await read_outcome(self._bus, request, recorded.event)).line)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The rollouts of one task, all of which have ended; or one of them, where a feed takes single rollouts."""

    id: str
    agent: str
    task_index: int
    epoch: int
    version: int
    """The policy version when it was asked for."""
    lag: int
    """Its staleness at delivery: versions since the oldest that generated any token of its completed rollouts."""
    rollouts: tuple[Finished, ...]
    """By index. Those that failed or were cancelled say why."""

    @property
    def rewards(self) -> list[float | None]:
        """Of the rollouts, in their order."""
        return [rollout.reward for rollout in self.rollouts]

    @property
    def missing(self) -> dict[str, str]:
        """The rollouts without a reward, each with the reason."""
        return {r.rollout_id: f"{r.error}: {r.message}" for r in self.rollouts if r.reward is None}

    def advantages(self, *, normalize: bool = False) -> list[float | None]:
        """The group-relative advantages of the rollouts; see `group_advantages`."""
        return group_advantages(self.rewards, normalize=normalize)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What was asked for, in the order in which the feed takes it."""

    groups: tuple[Group, ...]
    version: int
    """The trainer's policy version at delivery."""
    _units: tuple[Unit, ...] = field(repr=False)
    _consumption: "Consumption" = field(repr=False)

    @property
    def rollouts(self) -> Iterator[Finished]:
        """All rollouts of all groups."""
        return (rollout for group in self.groups for rollout in group.rollouts)

    @property
    def lags(self) -> Counter[int]:
        """Rollouts by the staleness of their group."""
        lags: Counter[int] = Counter()
        for group in self.groups:
            lags[group.lag] += len(group.rollouts)
        return lags

    async def commit(self) -> None:
        """It was used: it does not come again, whatever is killed from now on. Again changes nothing."""
        await self._consumption.commit(self)

    async def drop(self, reason: str) -> None:
        """It is of no use: it does not come again, and is counted under this reason, a name.

        Nothing was trained on, so as much more may be asked for in its place.
        """
        await self._consumption.drop_batch(self, reason)
