"""In which time was a rollout of this worker at rest, though nobody ended it?

A rollout's deadline is for what it does: it does not count while the deployment is down, nor while the log takes
nothing, since it is full or away. What waits then goes on afterwards. Called by the agent worker, which looks for
rollouts past their deadline. It never ends or holds back anything.
"""

import asyncio
import time
from datetime import UTC, datetime
from math import inf
from typing import Final

from bus import Bus, BusError
from bus.room import LogRoom

LOOK_S: Final = 5.0
"""Seconds between two looks at the log, and that it may take to answer one."""


class Served:
    """The time in which the log served, as this worker sees it."""

    def __init__(self, bus: Bus) -> None:
        self._bus, self._room = bus, LogRoom(bus)
        self.up_since = datetime.min.replace(tzinfo=UTC)
        """When the deployment was started last."""
        self._pauses: list[tuple[float, float]] = []
        """From when to when the log took nothing, on the monotonic clock."""
        self._good = time.monotonic()
        """When it was last found to take something."""

    async def start(self) -> None:
        """Learns when the deployment was started; raises `BusError`."""
        if (deployed := await self._bus.last(self._bus.subjects.deployment("resolved", "*"))) is not None:
            self.up_since = deployed.event.time

    async def follow(self) -> None:
        """Looks at the log again and again; never returns."""
        pausing = False
        while True:
            serves = await self._serves()
            now = time.monotonic()
            if serves:
                self._good = now
                if pausing:
                    self._pauses[-1] = self._pauses[-1][0], now
            elif not pausing:
                self._pauses.append((self._good, inf))
            pausing = not serves
            await asyncio.sleep(LOOK_S)

    def ago(self, seconds: float) -> float:
        """When it was, on the monotonic clock, that the log was still to serve for so many seconds until now."""
        since = time.monotonic()
        for start, end in reversed(self._pauses):
            served = max(0.0, since - end)
            if served >= seconds:
                break
            seconds -= served
            since = start
        return since - seconds

    async def _serves(self) -> bool:
        try:
            async with asyncio.timeout(LOOK_S):
                return await self._room.full() is None and not self._bus.log_full
        except (BusError, TimeoutError):
            return False
