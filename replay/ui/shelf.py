"""One source in the web app: its rollouts in memory, kept up to date, and its events when somebody asks.

The log of a live deployment is followed. A run at rest is read through once; its store is opened again for whoever
asks, and given back after some seconds without a question, since another command may want it. Called by `library`.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Final, Literal

import structlog

from bus import BusError
from contracts.events import Recorded
from replay.errors import ReplayError
from replay.facts import Facts, facts_of
from replay.file_source import FileSource
from replay.log_source import LogSource
from replay.opening import Where, open_source
from replay.places import Place, live_url
from replay.source import Source, load
from replay.trajectory import REVISED, Trajectory
from replay.ui.entries import Entries, Entry

State = Literal["loading", "live", "at rest", "lost"]

_IDLE_S: Final = 2.0
_LOOK_S: Final = 1.0
"""So often it is asked whether a run is live."""
_READY_S: Final = 2.0
_NOTICE: Final = 2_000
"""Events after which those who wait hear of news while a source is read."""
_TURN: Final = 200
"""Events after which others get their turn, however fast a source is."""
_KEPT: Final = 4
"""Trajectories that are remembered; each takes some megabytes of memory and its outline."""


class Shelf:
    """The rollouts of a source. `version` is raised with each change of them."""

    def __init__(self, where: Where, place: Place | None = None) -> None:
        """`place` is the run's directory, where it is one; nothing is opened before `start`."""
        self.entries: list[Entry] = []
        """In the order of their requests."""
        self.version = 0
        self.state: State = "loading"
        self.error = ""
        """Why it is `lost`: for a human."""
        self.facts = Facts(())
        self.where, self._place = where, place
        self._by_id: dict[str, Entry] = {}
        self._runs: set[str] = set()
        self._seen: dict[int, int] = {}
        """Up to where each partition was read."""
        self._made = Entries(self.facts)
        self._news = asyncio.Event()
        self._source: Source | None = None
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._users = 0
        self._closing: asyncio.TimerHandle | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._returning: set[asyncio.Task[None]] = set()
        self._read: dict[str, Trajectory] = {}

    def start(self) -> None:
        """Begins to read, in a task of its own."""
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def stop(self) -> None:
        """Ends reading and gives the source back."""
        if self._keeper is not None:
            self._keeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeper
        self._hold()
        await asyncio.gather(*self._returning)
        await self._close()

    @property
    def changing(self) -> bool:
        """Whether more is to be expected at any moment."""
        return self.state in ("loading", "live")

    def entry(self, rollout_id: str) -> Entry | None:
        """A rollout's entry, if it is known by now."""
        return self._by_id.get(rollout_id)

    async def lacks(self, run_id: str) -> bool:
        """Whether it has been read, and holds nothing of this run."""
        if run_id not in self._runs:
            await self.ready()
        return run_id not in self._runs and self.state in ("live", "at rest")

    async def changed(self, version: int) -> int:
        """Waits until there is something newer than `version`; returns what is the newest."""
        while self.version <= version:
            await self._news.wait()
        return self.version

    async def ready(self) -> None:
        """Waits until it has been read through, but not long: what has been read by then is there."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_READY_S):
                while self.state == "loading":
                    await self.changed(self.version)

    @asynccontextmanager
    async def source(self) -> AsyncIterator[Source]:
        """The open source. Raises `ReplayError` or `BusError`."""
        self._hold()
        self._users += 1
        try:
            async with self._opening:
                if self._source is None:
                    self._source = await self._open()
            yield self._source
        finally:
            self._users -= 1
            if not self._users and self._place is not None:
                self._closing = asyncio.get_running_loop().call_later(_IDLE_S, self._give_back)

    async def trajectory(self, rollout_id: str) -> Trajectory:
        """One rollout's trajectory; the last ones that have ended are remembered. Raises `ReplayError`, `BusError`."""
        if (known := self._read.pop(rollout_id, None)) is None:
            async with self.source() as source:
                known = await load(source, rollout_id)
        if known.ended is not None:
            self._read[rollout_id] = known
            while len(self._read) > _KEPT:
                del self._read[next(iter(self._read))]
        return known

    # --- reading ------------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        while True:
            followed = self._followed
            try:
                async with self.source() as source:
                    await self._read_from(source, follow=followed)
            except (ReplayError, BusError) as error:
                structlog.get_logger().warning("ui.source_lost", error=str(error))
                self._tell("lost", str(error))
                await asyncio.sleep(_LOOK_S)
                continue
            if not followed:
                self._tell("at rest")
                await self._until_live(True)
            else:
                await self._close()  # its server has gone; the store is opened next

    @property
    def _followed(self) -> bool:
        return self.where.url is not None or (self._place is not None and live_url(self._place) is not None)

    async def _read_from(self, source: Source, *, follow: bool) -> None:
        self.facts = self._made.facts = await facts_of(source)
        if not isinstance(source, LogSource):
            for events in (source.outline(), source.revisions()):
                async for recorded in events:
                    await self._add(source, recorded)
            return
        for partition in range(source.partitions):
            await self._add_all(source, partition, follow=False)
        if not follow:
            return
        self._tell("live")
        tasks = [
            asyncio.ensure_future(self._add_all(source, partition, follow=True))
            for partition in range(source.partitions)
        ]
        if self._place is not None:
            tasks.append(asyncio.ensure_future(self._until_live(False)))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _add_all(self, source: LogSource, partition: int, *, follow: bool) -> None:
        start = self._seen.get(partition, 0) + 1
        async for recorded in source.follow(partition, start=start, for_ever=follow):
            await self._add(source, recorded)
            self._seen[partition] = recorded.seq

    async def _add(self, source: Source, recorded: Recorded) -> None:
        rollout = recorded.event.rolloutid
        known = self._by_id.get(rollout)
        if recorded.event.type == "rollout.requested":
            if known is None:
                entry = self._made.requested(recorded, await source.data(recorded.event))
                self._by_id[rollout] = entry
                self._runs.add(entry.run_id)
                self.entries.append(entry)
        elif recorded.event.type == REVISED:
            if known is not None:
                self._made.revised(known, recorded, await source.data(recorded.event))
        elif known is not None:
            self._made.ended(known, recorded, await source.data(recorded.event))
        self.version += 1
        if self.state == "live" or self.version % _NOTICE == 0:
            self._wake()
        if self.version % _TURN == 0:
            await asyncio.sleep(0)

    def _tell(self, state: State, error: str = "") -> None:
        if (state, error) != (self.state, self.error):
            self.state, self.error = state, error
            self.version += 1
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _until_live(self, live: bool) -> None:
        """Waits for a change of the lock on a file, of which nothing tells."""
        while self._place is None or (live_url(self._place) is not None) != live:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)

    # --- opening and giving back ----------------------------------------------------------------------------------

    async def _open(self) -> Source:
        if self.where.files:
            return await asyncio.to_thread(FileSource, self.where.files)
        return await self._stack.enter_async_context(open_source(self.where))

    def _hold(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None

    def _give_back(self) -> None:
        task = asyncio.get_running_loop().create_task(self._close())
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    async def _close(self) -> None:
        async with self._opening:
            if not self._users:
                self._source = None
                with suppress(BusError):  # what it was connected to has gone before
                    await self._stack.aclose()
