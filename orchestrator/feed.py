"""When does a trainer get its next batch, and what does it see of it?

Waits until `batches` finds one, and drops with a record what is of no use. What it delivers comes again after a crash
unless it was committed. Made by `Trainer.feed`; it reads nothing of the log: how a rollout ended says which policy
versions it is of.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Self, cast

import structlog

from orchestrator.batches import Choice, choose, useless_among, worth_a_look
from orchestrator.consumption import Consumption
from orchestrator.delivered import Batch, Finished, Group
from orchestrator.feed_view import FeedView
from orchestrator.groups import Member, OpenGroup, Unit
from orchestrator.patience import Patience
from orchestrator.starvation import starved
from orchestrator.trainer_options import FeedOptions

_log = structlog.get_logger("feed")


class Feed:
    """Batches, one after the other: `async for batch in feed`."""

    def __init__(self, view: FeedView, options: FeedOptions, consumption: Consumption) -> None:
        self._view, self._options, self._consumption = view, options, consumption
        self._judged: int | None = None
        """The policy version at which what waits was last looked at."""
        self._arrived = 0
        """Rollouts that had ended when it was last asked what of them teaches nothing."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        """The next batch, whole; raises `FeedStarved`, `RunCancelled`, `FeedTaken`, `BusError`.

        Ends when nothing more will be submitted and everything was delivered; the last batch may be smaller then.
        """
        loop, view, options = asyncio.get_running_loop(), self._view, self._options
        patience = Patience(view.groups, view.version, options.patience_s, loop.time())
        while True:
            view.bell.check()
            chosen, useless = self._look()
            if useless:
                if patience.over(loop.time()):
                    raise starved(view, options, self._consumption.dropped, patience)
                patience.in_vain(useless)
                await self._consumption.drop(useless)
                continue  # the version may have risen meanwhile
            if chosen:
                return self._deliver(chosen)
            if self._over:
                raise StopAsyncIteration
            patience.look(view.version, loop.time())
            if patience.over(loop.time()):
                raise starved(view, options, self._consumption.dropped, patience)
            try:
                async with asyncio.timeout_at(patience.deadline):
                    await view.bell.wait()
            except TimeoutError:
                raise starved(view, options, self._consumption.dropped, patience) from None

    def _look(self) -> Choice:
        """What there is to deliver, or first to drop."""
        view, options = self._view, self._options
        arrived, self._arrived = view.groups.arrived - self._arrived, view.groups.arrived
        if options.drop_zero_variance and (useless := useless_among(view.groups, options, view.version, arrived)):
            return Choice([], useless)
        if not worth_a_look(view.groups, options, final=self._final, judged=self._judged == view.version):
            return Choice([], {})
        self._judged = view.version
        return choose(view.groups, options, view.pacing, view.version, final=self._final)

    @property
    def _final(self) -> bool:
        """Whether what is there now is all that will ever be there."""
        view = self._view
        return view.complete and not view.submitting and not view.groups.unfinished_rollouts

    @property
    def _over(self) -> bool:
        groups = self._view.groups
        return self._final and not (groups.ended if self._options.single else groups.ready)

    def _deliver(self, units: Sequence[Unit]) -> Batch:
        self._view.groups.deliver(units)
        self._warn(member for unit in units for member in unit.untrainable)
        return Batch(
            groups=tuple(self._group(unit) for unit in units),
            version=self._view.version,
            _units=tuple(units),
            _consumption=self._consumption,
        )

    def _warn(self, untrainable: Iterable[Member]) -> None:
        """Says of the first of each kind why there is nothing to train on; commits count them."""
        models = ", ".join(self._view.models)
        for member in untrainable:
            end = member.end
            if end is not None and end.stats is not None and not set(end.stats.models) & set(self._view.models):
                why = f"{models} was not called in it"
            elif end is not None and end.trained.token_less:
                why = f"tokens of {models} were refused"
            else:
                why = f"tokens of {models} were not captured: set `token_ids: true` in the model's config"
            if why not in self._view.told:
                self._view.told.add(why)
                _log.warning("no_tokens", rollout=member.rollout, why=why)

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
