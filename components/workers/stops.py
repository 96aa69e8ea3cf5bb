"""How did a worker end: told to stop, by what ran in it, or nobody knows?

What a worker gave back because it was told to stop is no fault of what it held: it says so in the log before. That one
crashed says its supervisor, where it has one and that lives. Read where a call or a rollout has been tried so often
that it is about to be buried (`suspects`, `adoption`): only the workers that it may have ended count against it; and
where what comes again would be tried with care (`callee`, `agent`): not while all that ended was told to.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from math import inf
from typing import Final

import msgspec
import structlog

from bus import Bus, BusError
from contracts.deployments import WorkerCrashed, WorkerStopping
from contracts.events import Event, Kind

_SAY_S: Final = 1.0
"""Seconds that saying so may take: where the log is away, it stays unsaid."""
_LOOK_AGAIN_S: Final = 1.0

UNCOUNTED: Final = 2**31
"""Deliveries that the pools of workers allow: `suspects` and `adoption` count in their own way."""
UNSUSPECTED: Final = 2
"""Deliveries: one worker may die of anything."""


async def say_stopping(bus: Bus, worker: str, kind: Kind, instance: str) -> None:
    """Writes into the log that this worker was told to stop."""
    said = WorkerStopping(worker=worker, kind=kind, instance=instance)
    subject = bus.subjects.deployment("stopping", worker)
    event = bus.event(type="deployment.stopping", subject=subject, data=msgspec.json.encode(said))
    async with _unsaid_where_the_log_is_away(event):
        await bus.publish(event)


async def say_crashed(bus: Bus, worker: str, how: str) -> None:
    """Writes into the log that this worker was ended by what ran in it, unless it was told to stop."""
    subject = bus.subjects.deployment("crashed", worker)
    said = msgspec.json.encode(WorkerCrashed(worker=worker, how=how))
    event = bus.event(type="deployment.crashed", subject=subject, data=said)
    async with _unsaid_where_the_log_is_away(event):
        if not await was_stopped(bus, worker):
            await bus.publish(event)


@asynccontextmanager
async def _unsaid_where_the_log_is_away(event: Event) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(_SAY_S):
            yield
    except (BusError, TimeoutError) as error:
        structlog.get_logger().warning("worker.end_unsaid", what=event.type, error=f"{type(error).__name__}: {error}")


async def was_stopped(bus: Bus, worker: str) -> bool:
    """Whether this worker was told to stop."""
    return await bus.last(bus.subjects.deployment("stopping", worker)) is not None


async def has_crashed(bus: Bus, worker: str) -> bool:
    """Whether it is known that this worker was ended by what ran in it."""
    return await bus.last(bus.subjects.deployment("crashed", worker)) is not None


class Departures:
    """When workers left, as far as the log says; of each it is asked once."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._known: dict[str, datetime | None] = {}

    async def of(self, worker: str) -> datetime | None:
        """When this worker, which is not there any more, was told to stop, or ended by what ran in it."""
        if worker not in self._known:
            said = [await self._bus.last(self._bus.subjects.deployment(how, worker)) for how in ("stopping", "crashed")]
            self._known[worker] = min((each.event.time for each in said if each is not None), default=None)
        return self._known[worker]


class Ends:
    """When workers of one instance ended, and nobody knows why."""

    def __init__(self, bus: Bus, instance: str) -> None:
        self._bus, self._start = bus, f"{instance[:40]}-"
        self._there: dict[str, str] = {}
        """By its place in the pool, the worker that started there last and was not told to stop."""
        self._last: datetime | None = None
        self._next = 1
        """The sequence from which on there may be news."""
        self._looking, self._looked = asyncio.Lock(), -inf

    async def since(self, moment: datetime) -> bool:
        """Whether another worker had to take the place of one, after this moment, that was not told to stop.

        Where the whole deployment was started anew, that says nothing of what they held. Raises `BusError`.
        """
        async with self._looking:
            if time.monotonic() - self._looked > _LOOK_AGAIN_S:
                await self._look()
                self._looked = time.monotonic()
        return self._last is not None and self._last >= moment

    async def _look(self) -> None:
        said = [self._bus.subjects.deployment(what, "*") for what in ("resolved", "worker", "stopping")]
        async for recorded in self._bus.scan(*said, start=self._next):
            self._next = recorded.seq + 1
            what, worker = recorded.subject.split(".")[-2:]
            place = worker.rpartition("-")[0]
            if what == "resolved":
                self._there.clear()
            elif place.startswith(self._start) and place[len(self._start) :].isdigit():
                before = self._there.pop(place, worker)
                if what == "worker":
                    self._there[place] = worker
                    self._last = self._last if before == worker else recorded.event.time


def in_a_row(workers: int) -> str:
    """So many workers, in the message of what they did not outlive."""
    return "1 worker" if workers == 1 else f"{workers} workers in a row"
