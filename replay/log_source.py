"""Trajectories out of the log of a deployment, live or at rest.

Only reads: it makes no stream, no durable consumer and no event; `reverify` appends over its connection.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from secrets import token_hex
from typing import Final

import msgspec

from bus import Bus, BusError, LogConfig
from bus.overview import PoolState, pool_states
from contracts.deployments import ResolvedDeployment
from contracts.events import Event, Recorded
from contracts.ids import ROOT_CALL
from replay.errors import NoSource
from replay.source import by_ending

_RESOLVED: Final = msgspec.json.Decoder(ResolvedDeployment)
_READER: Final = "replay"


class LogSource:
    """A deployment's log, over a connected bus."""

    def __init__(self, bus: Bus, name: str, url: str = "") -> None:
        """`url` is for other processes that are to read it too."""
        self._bus, self.url = bus, url
        self.name = name
        """Where the log is."""

    async def history(self, rollout_id: str) -> list[Recorded]:
        """See `Source`."""
        return await self._bus.history(rollout_id)

    async def stream(self, rollout_id: str) -> AsyncIterator[Recorded]:
        """See `Source`."""
        async for recorded in self._bus.history_stream(rollout_id):
            yield recorded

    async def data(self, event: Event) -> bytes:
        """See `Source`."""
        try:
            return await self._bus.fetch_data(event)
        except BusError as error:
            raise NoSource(f"{self.name}: event {event.id}: {error}") from error

    async def fetch_blob(self, reference: str) -> bytes:
        """See `Source`."""
        try:
            return await self._bus.fetch_blob(reference)
        except BusError as error:
            raise NoSource(f"{self.name}: {error}") from error

    def outline(self) -> AsyncIterator[Recorded]:
        """See `Source`."""
        partitions = range(self.partitions)
        return by_ending([self._bus.scan(*self._outline_of(each), partition=each) for each in partitions])

    def _outline_of(self, partition: int) -> tuple[str, str]:
        requests = f"{self._bus.config.namespace}.{partition}.agents.*.*.request.*.{ROOT_CALL}"
        return requests, self._bus.subjects.ended_of(partition, "*")

    @property
    def partitions(self) -> int:
        """How many the log has."""
        return self._bus.config.partitions

    async def follow(self, partition: int, *, start: int, for_ever: bool) -> AsyncGenerator[Recorded, None]:
        """The outline of one partition with its revisions, from a sequence on: to the present end, or for ever."""
        filters = (*self._outline_of(partition), self._bus.subjects.revised_of(partition, "*"))
        async for recorded in self._bus.scan(*filters, partition=partition, start=start, follow=for_ever):
            yield recorded

    async def pools(self) -> Sequence[PoolState]:
        """What waits in the pools right now, and what their workers hold. Raises `BusError`."""
        return await pool_states(self._bus)

    async def revisions(self) -> AsyncIterator[Recorded]:
        """See `Source`."""
        for partition in range(self._bus.config.partitions):
            async for recorded in self._bus.scan(self._bus.subjects.revised_of(partition, "*"), partition=partition):
                yield recorded

    @property
    def namespace(self) -> str:
        """Of the deployment."""
        return self._bus.config.namespace

    @property
    def bus(self) -> Bus:
        """For `reverify`, which appends what a verifier says now."""
        return self._bus

    async def deployment(self) -> list[Recorded]:
        """See `Source`."""
        return [recorded async for recorded in self._bus.scan(f"{self._bus.config.namespace}.0.deployment.>")]


@asynccontextmanager
async def open_log(url: str, log: LogConfig, name: str) -> AsyncIterator[LogSource]:
    """The log at a URL, to be read. Raises `BusError`."""
    async with open_bus(url, log, f"{_READER}-{token_hex(4)}") as bus:
        yield LogSource(bus, name, url)


@asynccontextmanager
async def open_bus(url: str, log: LogConfig, writer: str) -> AsyncIterator[Bus]:
    """A connection to the log at a URL; what was deployed there says how many partitions it has. Raises `BusError`.

    `writer` begins the IDs of what is written over it.
    """
    async with await Bus.connect(url, log, name=_READER, writer=_READER) as bus:
        found = await bus.last(bus.subjects.deployment("resolved", "*"))
        resolved = _RESOLVED.decode(await bus.fetch_data(found.event)) if found is not None else None
    if resolved is not None:
        log = LogConfig.of_record(resolved.log)
    async with await Bus.connect(url, log, name=f"{_READER}/{writer}", writer=writer) as bus:
        yield bus
