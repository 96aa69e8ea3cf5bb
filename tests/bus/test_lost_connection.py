"""A connection that hears nothing any more is made anew, whatever ended it."""

import asyncio

import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError

from bus import Bus, Unreachable
from bus.room import largest_stream
from tests.bus.conftest import Open
from tests.bus.events import request, until
from tests.bus.own_server import OwnServer

SOON_S = 20.0
"""Less than the 30 s in which the client would find out by its pings."""


async def test_an_answer_to_who_has_given_up_ends_nothing(own: OwnServer, open_bus: Open) -> None:
    """B3: a flush that timed out, and whose pong came later, ended the client's reading for ever."""
    await own.start()
    bus = await open_bus(own.url)
    changes: list[bool] = []
    bus.on_connection(changes.append)
    await own.stand_still()
    with pytest.raises(NatsError):
        await bus._connection.wire.flush(1)
    own.go_on()
    async with asyncio.timeout(SOON_S):
        assert await bus.publish(request(bus, "r1")) == 1
    assert changes == []


async def test_a_reader_that_ends_by_an_exception_is_a_lost_connection(bus: Bus) -> None:
    """B3: it reconnects at once, and what was on its way is stored."""
    changes: list[bool] = []
    bus.on_connection(changes.append)
    reading = bus._connection.wire._reading_task
    assert reading is not None
    reading.cancel()
    async with asyncio.timeout(SOON_S):
        assert await bus.publish(request(bus, "r1")) == 1
        await until(lambda: changes == [False, True])


@pytest.mark.parametrize("how", ["closed", "cancelled"])
async def test_attempts_to_reconnect_end_though_a_cancellation_meets_their_result(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """B6: it gets lost there, and they would go on for ever, in a process that could not end."""
    wire, trying = bus._connection.wire, asyncio.Event()

    async def refused_when_cancelled(*_: object) -> None:
        trying.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConnectionRefusedError from None

    monkeypatch.setattr(Client, "_connect_to_server", refused_when_cancelled)
    assert wire._reading_task is not None
    wire._reading_task.cancel()
    async with asyncio.timeout(SOON_S):
        await trying.wait()
        attempts = wire._reconnection_task
        assert attempts is not None
        if how == "closed":
            await bus.close()
        else:
            attempts.cancel()
        await asyncio.wait([attempts])


async def test_who_waits_for_an_answer_hears_at_once_that_the_connection_is_lost_for_good(
    own: OwnServer, open_bus: Open
) -> None:
    """B3: nothing more can come, so nothing is asked again."""
    await own.start()
    bus = await open_bus(own.url)
    await own.stand_still()
    asking = asyncio.create_task(largest_stream(bus))
    await asyncio.sleep(0)
    await bus._connection.wire.close()  # as nats-py does when the server refuses the connection
    async with asyncio.timeout(SOON_S):
        with pytest.raises(Unreachable, match="ended the connection"):
            await asking


async def test_what_cannot_be_sent_does_not_keep_a_lost_connection_from_being_made_anew(
    own: OwnServer, open_bus: Open
) -> None:
    await own.start()
    bus = await open_bus(own.url)
    changes: list[bool] = []
    bus.on_connection(changes.append)
    await own.stand_still()
    for _ in range(40):  # more than the kernel takes from us
        bus._connection.send(b"nobody", b"", b"x" * 500_000)
    reading = bus._connection.wire._reading_task
    assert reading is not None
    reading.cancel()
    async with asyncio.timeout(SOON_S):
        await until(lambda: changes == [False])
        own.go_on()
        assert await bus.publish(request(bus, "r1")) == 1
