"""Whatever arrives at once, everything else in the process gets its turn in between."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest
from nats.aio.transport import TcpTransport

from bus import Bus, pool, wire
from bus.connection import connect
from bus.frames import TURN_S
from tests.bus.events import models, request, until

COUNT = 200
HANDLING_S = TURN_S / 4


@asynccontextmanager
async def most_in_a_turn(count: Callable[[], int]) -> AsyncIterator[list[int]]:
    """By how much a count has grown at most between two turns of the event loop, when the context ends."""
    loop = asyncio.get_running_loop()
    seen, most = count(), [0]
    on = True

    def turn() -> None:
        nonlocal seen
        now = count()
        most[0], seen = max(most[0], now - seen), now
        if on:
            loop.call_soon(turn)

    turn()
    yield most
    on = False


async def test_a_flood_of_messages_is_handled_some_at_a_time(url: str) -> None:
    sending, receiving = await connect(url, name="sending"), await connect(url, name="receiving")
    got: list[bytes] = []

    def handle(_subject: bytes, _reply: bytes, data: bytes, _headers: bytes | None) -> None:
        time.sleep(HANDLING_S)
        got.append(data)

    await receiving.subscribe("flood", handle)
    await receiving.wire.flush()
    async with most_in_a_turn(lambda: len(got)) as most:
        for number in range(COUNT):
            sending.send(b"flood", b"", b"%d" % number)
        await until(lambda: len(got) == COUNT)
    assert 0 < most[0] <= TURN_S / HANDLING_S + 1
    assert got == [b"%d" % number for number in range(COUNT)]
    await sending.close()
    await receiving.close()


async def test_what_follows_many_messages_leaves_together_and_what_follows_few_at_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a busy process writes seldom, and nobody waits for one that is not."""
    connection = await connect(url, name="sending")
    await connection.wire.flush()
    writer = cast("TcpTransport", connection.wire._transport)._io_writer
    writes: list[int] = []
    monkeypatch.setattr(writer, "write", lambda data: writes.append(data.count(b"PUB ")))

    async def sent(*turns: int) -> list[int]:
        """What each write has in it that comes of so many messages in each turn of the loop."""
        writes.clear()
        connection.wire._gathers_until = 0.0
        for count in turns:
            for _ in range(count):
                connection.send(b"nobody", b"", b"")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await until(lambda: sum(writes) == sum(turns))
        return list(writes)

    monkeypatch.setattr(wire, "GATHER_S", 2.0)
    monkeypatch.setattr(wire, "_EACH_S", 0.02)
    assert await sent(100, 1, 2, 3) == [100, 6]
    monkeypatch.setattr(wire, "_EACH_S", 0.0)
    assert await sent(3, 1, 2) == [3, 1, 2]
    monkeypatch.undo()
    await connection.close()


async def test_deliveries_that_were_fetched_at_once_are_handed_out_some_at_a_time(bus: Bus) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(500):
            group.create_task(bus.publish(request(bus, f"r{number}")))
    deliveries = await models(bus, batch=256)
    await until(lambda: deliveries.held == 256)
    got = 0
    async with most_in_a_turn(lambda: got) as most:
        async for delivery in deliveries:
            delivery.ack()
            got += 1
            if got == 500:
                break
    assert 0 < most[0] <= pool.TURN
