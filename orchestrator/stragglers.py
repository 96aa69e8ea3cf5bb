"""When has a group waited long enough for its last rollouts?

A rollout that has not ended so many seconds after the first of its group is cancelled, by an event as `jetgym cancel`
writes it, so its group ends with a reason for it. Where nothing of a group has ended, it counts from when something
ended of a group that was asked for later: pools take what was asked for first. Nothing
counts from before this trainer was started: the deployment may have been at rest as well. Run by `Trainer` beside
everything else.
"""

import asyncio
from datetime import UTC, datetime

from bus import Bus
from components.workers.cancellations import cancel
from orchestrator.bell import Bell
from orchestrator.groups import Groups, OpenGroup

LOOK_S = 0.25
"""Seconds between two looks."""


class Stragglers:
    """Cuts those of one run."""

    def __init__(self, bus: Bus, run: str, groups: Groups, bell: Bell) -> None:
        self._bus, self._run, self._groups, self._bell = bus, run, groups, bell
        self.after_s: float | None = None
        """None: they are waited for."""
        self._cut: set[str] = set()
        self._started = datetime.now(UTC)

    async def watch(self) -> None:
        """Cancels what is late, for ever."""
        while True:
            if self.after_s is None:
                await self._bell.wait()
            else:
                await self._look(self.after_s)
                await asyncio.sleep(LOOK_S)

    async def _look(self, after_s: float) -> None:
        now = datetime.now(UTC)
        for group in self._groups.unfinished:
            since = self._since(group, now)
            if since is not None and (now - since).total_seconds() > after_s:
                await self._cancel(group, after_s)

    def _since(self, group: OpenGroup, now: datetime) -> datetime | None:
        """From when on it is late; None: it is not."""
        if (first := group.first_end) is not None:
            return max(first, self._started)
        newest = self._groups.newest_ended
        if group.overtaken is None and newest is not None and newest > group.asked:
            group.overtaken = now
        return group.overtaken

    async def _cancel(self, group: OpenGroup, after_s: float) -> None:
        for member in group.unfinished:
            if member.rollout not in self._cut:
                self._cut.add(member.rollout)
                of = "its group" if group.first_end is not None else "a later group"
                reason = f"straggler: it had not ended {after_s:g} s after the first of {of}"
                await cancel(self._bus, self._run, member.rollout, reason)
