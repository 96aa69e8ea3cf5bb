"""A server killed and started again on the same store, under load."""

import asyncio
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from bus import BusError, LogConfig
from bus.errors import ApiRefused
from bus.opening import LogPlace
from bus.room import largest_stream
from bus.topology import Durability
from contracts.events import Recorded
from orchestrator import Trainer
from orchestrator.commands import logs as commands
from orchestrator.outages import tell_outages
from tests.bus.conftest import Open
from tests.bus.events import models, reply, request, take, until
from tests.bus.own_server import OwnServer
from tests.bus.trainers import deployed, tasks


@pytest.mark.parametrize(("durability", "count"), [("fast", 1500), ("always", 500)])
async def test_a_killed_server_stores_each_event_once_or_its_publish_is_reported(
    durability: Durability, count: int, own: OwnServer, open_bus: Open
) -> None:
    """B10: and no acked event is missing. (What a power cut takes, a process cannot test.)"""
    await own.start(LogConfig(durability=durability))
    bus = await open_bus(own.url)
    acked: set[str] = set()
    reported: set[str] = set()

    async def publish(number: int) -> None:
        event = request(bus, f"r{number}")
        try:
            await bus.publish(event)
            acked.add(event.rolloutid)
        except BusError:
            reported.add(event.rolloutid)

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(publish(number))
        for killed_at in (count // 8, count // 2):
            await until(lambda: len(acked) >= killed_at)  # noqa: B023 - awaited before it changes
            await own.kill()
            await own.start()
    found = [recorded.event.rolloutid async for recorded in bus.scan()]
    assert len(found) == len(set(found))
    assert acked <= set(found)
    assert acked | reported == {f"r{number}" for number in range(count)}
    assert not reported


async def test_replies_are_gap_free_and_pools_go_on_when_the_server_is_killed(own: OwnServer, open_bus: Open) -> None:
    """B10: a whole little deployment: calls, a pool that answers them, replies heard in order, two kills."""
    await own.start()
    caller, callee = await open_bus(own.url), await open_bus(own.url)
    heard: list[Recorded] = []
    await caller.replies("caller", heard.append)
    pool = await models(callee, ack_wait_s=1.0)

    async def answer() -> None:
        async for delivery in pool:
            event = delivery.event
            if not delivery.redelivered or await callee.last(event.replyto) is None:
                await callee.publish(reply(callee, event.rolloutid))
            delivery.ack()

    async def call() -> None:
        for number in range(600):
            await caller.publish(request(caller, f"r{number}"))

    async with asyncio.TaskGroup() as group:
        answering = group.create_task(answer())
        group.create_task(call())
        for killed_at in (100, 300):
            await until(lambda: len(heard) >= killed_at)  # noqa: B023 - awaited before it changes
            await own.kill()
            await own.start()
        await until(lambda: len(heard) >= 600)
        answering.cancel()
    in_log = [recorded.seq async for recorded in caller.scan(caller.subjects.replies_of(0, "caller"))]
    assert [recorded.seq for recorded in heard] == in_log
    assert {recorded.event.rolloutid for recorded in heard} == {f"r{number}" for number in range(600)}


async def test_a_publish_made_while_the_server_is_away_is_stored_when_it_returns(
    own: OwnServer, open_bus: Open
) -> None:
    """B10: clients reconnect by themselves."""
    await own.start()
    bus = await open_bus(own.url)
    await own.stop()
    publishing = asyncio.create_task(bus.publish(request(bus, "r1")))
    reading = asyncio.create_task(bus.history("r0"))
    await own.start()
    assert await asyncio.wait_for(publishing, 10) == 1
    assert await reading == []
    (delivery,) = await take(await models(bus))
    delivery.ack()


async def test_what_a_worker_holds_when_the_server_crashes_does_not_come_to_it_twice(
    own: OwnServer, open_bus: Open
) -> None:
    """B12: the server delivers it again; it is the same delivery, and its ack still counts."""
    await own.start()
    bus = await open_bus(own.url)
    pool = await models(bus, ack_wait_s=0.5)
    await bus.publish(request(bus, "r1"))
    (held,) = await take(pool)
    await own.kill()
    await own.start()
    await bus.publish(request(bus, "r2"))
    (next_one,) = await take(pool)
    assert next_one.event.rolloutid == "r2"
    waiting = asyncio.create_task(anext(pool))
    assert (await asyncio.wait([waiting], timeout=1.5))[0] == set()  # three ack waits
    held.ack()
    next_one.ack()
    stream = bus.subjects.stream(0)
    left = 1
    async with asyncio.timeout(10):
        while left:
            info = await bus._connection.api(f"CONSUMER.INFO.{stream}.models-policy-0", None, dict[str, Any])
            left = info["num_ack_pending"] + info["num_pending"]
    waiting.cancel()


async def test_a_server_that_comes_back_with_less_than_it_had_shown_is_told_and_heard_again(
    own: OwnServer, open_bus: Open
) -> None:
    """What a power cut does between two syncs: the store is put back to an older state."""
    store, older = own.directory / "store", own.directory / "older"
    await own.start()
    bus = await open_bus(own.url)
    heard: list[str] = []
    await bus.replies("caller", lambda recorded: heard.append(recorded.event.rolloutid))
    await bus.publish(reply(bus, "kept"))
    await own.stop()
    await asyncio.to_thread(shutil.copytree, store, older)
    await own.start()
    for number in range(3):
        await bus.publish(reply(bus, f"lost{number}"))
    await until(lambda: len(heard) == 4)
    await own.stop()
    await asyncio.to_thread(shutil.rmtree, store)
    await asyncio.to_thread(older.rename, store)
    with capture_logs() as logs:
        await own.start()
        await until(lambda: any(entry["event"] == "log_truncated" for entry in logs))
    await bus.publish(reply(bus, "after"))
    await until(lambda: heard[-1] == "after")


async def test_a_person_hears_that_the_server_is_away_and_that_it_is_back(
    own: OwnServer, new_directory: Callable[[], Path], open_bus: Open
) -> None:
    """Back when the log answers, not when only a connection is there; and no log line says it a second time."""
    await own.start()
    told: list[str] = []
    connected: list[bool] = []
    bus = await open_bus(own.url)
    bus.on_connection(connected.append)
    telling = asyncio.create_task(tell_outages(bus, "nats://there:4222", told.append))
    try:
        await asyncio.sleep(0)
        with capture_logs() as logs:
            await own.kill()
            await until(lambda: len(told) == 1)
            await own.start(elsewhere=new_directory())
            await until(lambda: connected == [False, True])
            with pytest.raises(ApiRefused, match="stream not found"):
                await largest_stream(bus)
            await asyncio.sleep(0)
            assert len(told) == 1
            await own.kill()
            await own.start()
            await until(lambda: len(told) == 2)
        assert told[0].startswith("the server at nats://there:4222 is away: trying again until it is back")
        assert told[1].startswith("the server at nats://there:4222 is back after ")
        assert "disconnected" not in {line["event"] for line in logs}
    finally:
        telling.cancel()


async def test_a_trainer_says_that_the_server_is_away_and_that_it_is_back(own: OwnServer) -> None:
    """In log lines, where nobody else is to be told; it goes on by itself."""
    await own.start()
    with capture_logs() as logs:

        def told() -> list[str]:
            return [line["told"] for line in logs if line["event"] == "server"]

        async with deployed(own.url, LogConfig()), Trainer.connect(own.url, run="grpo") as trainer:
            url = own.url
            taking = asyncio.create_task(anext(trainer.feed(groups=1)))
            await own.kill()
            await until(lambda: bool(told()))
            await own.start()
            await until(lambda: len(told()) == 2)
            for line, word in zip(told(), ("away", "back"), strict=True):
                assert line.startswith(f"the server at {url} is {word}")
            await trainer.submit(tasks(1), group_size=1)
            assert len((await taking).groups) == 1


async def test_a_person_hears_what_a_command_waits_for_where_a_server_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "SOON_S", 0.01)
    said = ""

    def told() -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return said != ""

    async def open_it() -> None:
        async with commands.open_place(LogPlace(f"nats://me:secret@127.0.0.1:{port}"), None, None):
            pass

    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        opening = asyncio.create_task(open_it())
        await until(told)
        opening.cancel()
        await asyncio.wait([opening])
    assert said == f"the log at nats://127.0.0.1:{port} does not answer yet: trying for up to 25 s\n"
