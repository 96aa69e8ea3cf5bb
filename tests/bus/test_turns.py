"""Whatever arrives at once, everything else in the process gets its turn in between."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from bus import Bus, pool
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
