"""How does a trainer ask for a group of rollouts of each task, as far as the bound on unfinished work allows?

What was asked for before is passed over. A group that was begun is asked for whole. Called by `Trainer.submit`.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from contracts.rollouts import RolloutRequest
from orchestrator.errors import UsageError
from orchestrator.feed_view import FeedView
from orchestrator.groups import OpenGroup
from orchestrator.run_log import RunLog, now
from orchestrator.submission import AnyTask, Submission, check_size, new_group, pass_over


class Asking:
    """That of one trainer."""

    def __init__(self, view: FeedView, submission: Submission, log: RunLog) -> None:
        self._view, self._groups, self._submission, self._log = view, view.groups, submission, log

    async def submit(self, tasks: Iterable[AnyTask], agent: str | None, size: int, epoch: int) -> int:
        """See `Trainer.submit`."""
        view = self._view
        view.pacing.check()
        name, new, old, asked = self._submission.agent(agent), 0, 0, None
        view.submitting += 1
        try:
            for asked in self._submission.asked(tasks, name, epoch):
                if self._was_asked(asked.group, size):
                    old += 1
                    await pass_over(tasks, old, len(self._groups.sizes))
                    continue
                old = 0
                await self._until_room(size)
                if self._was_asked(asked.group, size):
                    continue  # it was submitted elsewhere in this process meanwhile
                group = new_group(
                    asked.group,
                    agent=name,
                    task_index=asked.task_index,
                    epoch=epoch,
                    version=view.version,
                    asked=now(),
                    size=size,
                )
                request = self._submission.request(group, asked)
                self._groups.add(group)
                await self._ask(group, request)
                new += 1
            await asyncio.sleep(0)  # others get their turn whoever submits again and again
        finally:
            view.submitting -= 1
            view.bell.ring()
        if asked is None:
            raise UsageError(
                "no tasks were given: a file or an iterator gives them once, so make a new one for each epoch"
            )
        return new

    def _was_asked(self, group: str, size: int) -> bool:
        known = self._groups.sizes.get(group)
        if known:
            check_size(group, known, size)
        return known is not None

    async def _until_room(self, size: int) -> None:
        view = self._view
        while view.changing or not view.pacing.room(self._groups, size):
            await view.bell.wait()
        view.bell.check()

    async def _ask(self, group: OpenGroup, request: RolloutRequest) -> None:
        """A group that was begun is asked for whole, also if whoever submits is cancelled."""
        asking = asyncio.create_task(self._log.ask(group, request))
        try:
            await asyncio.shield(asking)
        except asyncio.CancelledError:
            with suppress(Exception):  # it was cancelled, which is what is told
                await asking
            raise
        except BaseException:
            self._groups.forget(group)
            raise
