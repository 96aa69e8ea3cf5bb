"""The web app on the log of a real server: followed while it is live, given back while it is at rest."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from bus import Bus, EmbeddedServer, LogConfig
from bus.errors import StoreInUse
from bus.run_folder import FORKS, MATERIALIZED
from contracts.rollouts import Revised
from orchestrator.run_files import RunFiles
from replay.errors import UnknownName
from replay.log_source import LogSource
from replay.opening import Where
from replay.places import place
from replay.ui.library import OPEN, Library
from replay.ui.shelf import Shelf
from replay.ui.table import rows_of
from tests.unit.replay.examples import recorded_run


@asynccontextmanager
async def started(shelf: Shelf) -> AsyncIterator[Shelf]:
    shelf.start()
    try:
        yield shelf
    finally:
        await shelf.stop()


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[EmbeddedServer]:
    """The run's store, served by another command once the app has given it back."""
    async with asyncio.timeout(30):
        while True:
            with suppress(StoreInUse):
                server = await EmbeddedServer.start(folder / "log", LogConfig())
                break
            await asyncio.sleep(0.05)
    try:
        yield server
    finally:
        await server.stop()


async def until(shelf: Shelf, true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():
            await shelf.changed(shelf.version)


@pytest.fixture
async def bus(server: str, config: LogConfig) -> AsyncIterator[Bus]:
    async with await Bus.connect(server, config, name="test/ui", writer="test") as bus:
        await bus.ensure_log()
        yield bus


async def run_at_rest(results: Path, run: str = "r1", *forks: str) -> Path:
    """A run's directory with two rollouts in the store of its own server, which does not run, and two of each fork."""
    folder = results / run
    server = await EmbeddedServer.start(folder / "log", LogConfig())
    async with await Bus.connect(server.url, LogConfig(), name="test/ui", writer="test") as bus:
        await bus.ensure_log()
        for recorded in recorded_run(2, runs=(run, *forks)).log:
            await bus.publish(recorded.event)
    await server.stop()
    (folder / "config.yaml").write_text("log: {namespace: jetgym}")
    (folder / MATERIALIZED).write_text(f'{{"rollout_id": "{run}-00000-00"}}\n')
    return folder


async def test_a_live_log_is_followed(bus: Bus, server: str) -> None:
    events = [recorded.event for recorded in recorded_run(3, bus.subjects).log]
    first_end = next(place for place, event in enumerate(events) if event.type == "rollout.completed")
    for event in events[:first_end]:
        await bus.publish(event)
    async with started(Shelf(Where(url=server, namespace=bus.config.namespace))) as shelf:
        await until(shelf, lambda: shelf.state == "live")
        assert [(entry.rollout_id, entry.outcome) for entry in shelf.entries] == [("r1-00000-00", "in flight")]
        for event in events[first_end:]:
            await bus.publish(event)
        await until(shelf, lambda: [entry.reward for entry in shelf.entries] == [1.0] * 3)
        async with shelf.source() as source:
            assert isinstance(source, LogSource)
            assert list(await source.pools()) == []
        revised = msgspec.json.encode(Revised(reward=0.25, was=1.0))
        subject = bus.subjects.revised("r1", "r1-00001-00", 1)
        await bus.publish(bus.event(type="rollout.revised", subject=subject, data=revised, rolloutid="r1-00001-00"))
        await until(shelf, lambda: shelf.entries[1].revisions == 1)
        assert (shelf.entries[1].reward, shelf.entries[1].first_reward) == (0.25, 1.0)


async def test_the_store_of_a_run_at_rest_is_read_given_back_and_opened_again(tmp_path: Path) -> None:
    folder = await run_at_rest(tmp_path)
    async with started(Shelf(Where(run=str(folder)), place(folder))) as shelf:
        await until(shelf, lambda: shelf.state == "at rest")
        assert [entry.reward for entry in shelf.entries] == [1.0, 1.0]
        async with serving(folder):
            pass
        assert (await shelf.trajectory("r1-00001-00")).reward == 1.0


async def test_a_run_that_becomes_live_and_ends_again_is_followed_without_a_gap(tmp_path: Path) -> None:
    folder = await run_at_rest(tmp_path)
    async with started(Shelf(Where(run=str(folder)), place(folder))) as shelf:
        await until(shelf, lambda: shelf.state == "at rest")
        async with serving(folder) as server:
            with RunFiles(folder) as files:
                files.live({"url": server.url, "namespace": "jetgym"})
                await until(shelf, lambda: shelf.state == "live")
                async with await Bus.connect(server.url, LogConfig(), name="test/ui", writer="test") as bus:
                    for recorded in recorded_run(3).log:
                        if recorded.event.rolloutid == "r1-00002-00":
                            await bus.publish(recorded.event)
                await until(shelf, lambda: [entry.reward for entry in shelf.entries] == [1.0] * 3)
        await until(shelf, lambda: shelf.state == "at rest")
        assert [entry.rollout_id for entry in shelf.entries] == ["r1-00000-00", "r1-00001-00", "r1-00002-00"]


async def test_a_fork_in_the_log_of_a_run_is_a_run_of_its_own(tmp_path: Path) -> None:
    folder = await run_at_rest(tmp_path, "r1", "f1")
    (folder / FORKS).write_text('{"run_id": "f1", "state": "ended", "asked": 2, "started": "2026-11-29T12:00:00Z"}\n')
    library = Library(Where(results=tmp_path, run="r1"))
    try:
        fork, run = await library.open("f1"), await library.holding("r1-00001-00")
        assert fork.shelf is run.shelf
        await until(fork.shelf, lambda: fork.shelf.state == "at rest")
        assert [row.rollout_id for row in rows_of(fork)] == ["f1-00000-00", "f1-00001-00"]
        assert [row.rollout_id for row in rows_of(run)] == ["r1-00000-00", "r1-00001-00"]
        assert (await library.holding("f1-00001-00")).run_id == "f1"
    finally:
        await library.close()


async def test_so_many_sources_are_open_and_no_more(tmp_path: Path) -> None:
    runs = [f"r{number}" for number in range(OPEN + 1)]
    for run in runs:
        await run_at_rest(tmp_path, run)
    library = Library(Where(results=tmp_path))
    try:
        assert {row.run_id for row in await library.runs()} == set(runs)
        opened = [await library.open(run) for run in runs]
        await until(opened[-1].shelf, lambda: opened[-1].shelf.state == "at rest")
        await library.tidy()
        assert (await library.open(runs[-1])).shelf is opened[-1].shelf
        assert (await library.open(runs[0])).shelf is not opened[0].shelf
        assert (await library.holding("r1-00001-00")).run_id == "r1"
        with pytest.raises(UnknownName, match="no run here has a rollout"):
            await library.holding("r9-00001-00")
    finally:
        await library.close()
