"""A full log refuses instead of forgetting: publishers wait, and go on when there is room."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from bus import Bus, EmbeddedServer, LogConfig, Unreachable
from bus.errors import BusClosed, LogFull
from bus.room import largest_stream, set_bound, unless_full
from bus.server import find_binary
from tests.bus.events import request, until

FILLING = b'"' + b"x" * 4_000 + b'"'


@pytest.fixture
def config(config: LogConfig) -> LogConfig:
    return config.model_copy(update={"max_bytes": 200_000})


async def fill(bus: Bus, count: int) -> list[asyncio.Task[int]]:
    """Publishes more than fits; returns when some of it waits."""
    tasks = [asyncio.create_task(bus.publish(request(bus, f"r{number}", data=FILLING))) for number in range(count)]
    await until(lambda: bus.log_full)
    return tasks


async def test_a_full_log_makes_publishers_wait_and_nothing_is_lost_or_overwritten(bus: Bus) -> None:
    """B9, B3: it is told, the admission can see it, and all go on when there is room."""
    with capture_logs() as logs:
        tasks = await fill(bus, 100)
        stored = [task for task in tasks if task.done()]
        before = [recorded.raw async for recorded in bus.scan()]
        assert 0 < len(before) < 100
        assert len(stored) <= len(before)
        bus.config.__dict__["max_bytes"] = 10_000_000
        await bus.ensure_log(adjust=True)
        await asyncio.wait_for(asyncio.gather(*tasks), 20)
    assert not bus.log_full
    after = [recorded.raw async for recorded in bus.scan()]
    assert after[: len(before)] == before
    assert len(after) == 100
    assert [entry["event"] for entry in logs if entry["log_level"] != "debug"].count("log_full") == 1
    assert {"log_full", "log_has_room"} <= {entry["event"] for entry in logs}


async def test_who_cannot_wait_for_room_is_told_and_what_it_wrote_is_not_stored_later(
    url: str, config: LogConfig, bus: Bus
) -> None:
    """B3: a command says that it did not do it, and then it is not done behind its back."""
    async with await Bus.connect(url, config, name="test/full/w2", writer="w2") as other:
        waiting = await fill(bus, 100)
        with pytest.raises(LogFull):
            await unless_full(other, other.publish(request(other, "late", data=FILLING)))
    await set_bound(bus, 10_000_000)
    await asyncio.wait_for(asyncio.gather(*waiting), 20)
    assert await bus.history("late") == []
    assert await unless_full(bus, bus.publish(request(bus, "late", data=FILLING))) == 101


async def test_a_larger_bound_lets_those_who_wait_go_on_and_holds_for_blobs_too(url: str, config: LogConfig) -> None:
    """B9."""
    config = config.model_copy(update={"partitions": 2, "namespace": f"{config.namespace}q"})
    async with await Bus.connect(url, config, name="test/full/w1", writer="w1") as bus:
        await bus.ensure_log()
        waiting = await fill(bus, 200)
        assert config.max_bytes - 10_000 < await largest_stream(bus) <= config.max_bytes
        await set_bound(bus, -1)
        large = b'"' + b"x" * 2 * config.max_bytes + b'"'
        await asyncio.wait_for(asyncio.gather(*waiting, bus.publish(request(bus, "blob", data=large))), 20)


async def test_a_publish_that_waits_for_room_outlives_the_outage_limit(
    url: str, config: LogConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B9: a full log is no outage."""
    monkeypatch.setattr("bus.publish._CHECK_S", 0.05)
    monkeypatch.setattr("bus.bus.OUTAGE_S", 0.2)
    async with await Bus.connect(url, config, name="test/full/w1", writer="w1") as bus:
        await bus.ensure_log()
        tasks = await fill(bus, 60)
        await asyncio.wait([asyncio.create_task(asyncio.sleep(1.0))])
        assert not any(task.done() and task.exception() for task in tasks)
        await bus.close(0.0)
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(result) for result in results} == {int, BusClosed}


async def test_reading_and_other_partitions_go_on_while_one_is_full(url: str, config: LogConfig) -> None:
    """B9."""
    config = config.model_copy(update={"partitions": 2, "namespace": f"{config.namespace}p"})
    async with await Bus.connect(url, config, name="test/full/w1", writer="w1") as bus:
        await bus.ensure_log()
        names = [f"r{number}" for number in range(400)]
        first = [name for name in names if bus.subjects.partition(name) == 0]
        second = [name for name in names if bus.subjects.partition(name) == 1]
        waiting = [asyncio.create_task(bus.publish(request(bus, name, data=FILLING))) for name in first]
        await until(lambda: bus.log_full)
        for name in second[:20]:
            await bus.publish(request(bus, name, data=FILLING))
            assert len(await bus.history(name)) == 1
        assert bus.log_full
        for task in waiting:
            task.cancel()


async def test_a_server_whose_own_store_is_full_is_waited_for_too(new_directory: Callable[[], Path]) -> None:
    """B9: without `max_bytes` it is the server's limit that is reached."""
    directory = new_directory()
    server = await EmbeddedServer.start(directory, LogConfig())
    await server.stop()
    conf = directory / "nats-server.conf"
    conf.write_text(conf.read_text().replace("jetstream {", "jetstream {\n  max_file_store: 300000"))
    binary = find_binary(None)
    process = await asyncio.create_subprocess_exec(binary, "-c", conf, "-p", str(server.port))
    try:
        async with asyncio.timeout(10):
            while True:
                try:
                    bus = await Bus.connect(server.url, LogConfig(), name="test/full/w1", writer="w1")
                    break
                except Unreachable:
                    continue
        await bus.ensure_log()
        tasks = await fill(bus, 120)
        assert not any(task.done() and task.exception() for task in tasks)
        await bus.close(0.0)
        await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        process.terminate()
        await process.wait()
