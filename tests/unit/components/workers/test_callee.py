"""Places for calls in progress: a call that waits to be tried again gives its own back meanwhile."""

import asyncio
from typing import cast

import pytest

from bus import Bus, Delivery
from components.workers.callee import Callee, Reply


async def never(_delivery: Delivery, _data: bytes) -> Reply:
    raise AssertionError


async def test_a_call_that_waits_holds_no_place_and_has_one_again_when_it_goes_on() -> None:
    callee = Callee(cast("Bus", None), never, concurrency=1)
    room, held = callee._room, []

    async def call() -> None:
        async with room:
            await callee.wait(0.01)
            held.append(room.locked())

    async with asyncio.timeout(10):
        calls = [asyncio.create_task(call()) for _ in range(2)]
        await asyncio.sleep(0)
        assert len(callee._waiting) == len(calls)
        await asyncio.gather(*calls)
    assert held == [True, True]
    assert not room.locked()


async def test_a_place_that_a_cancelled_call_had_given_back_is_not_given_back_twice() -> None:
    callee = Callee(cast("Bus", None), never, concurrency=1)
    room = callee._room

    async def call() -> None:
        async with room:
            await callee.wait(600.0)

    waiting = asyncio.create_task(call())
    async with asyncio.timeout(10):
        await asyncio.sleep(0)
        assert waiting in callee._waiting
        async with room:  # while the call waits
            waiting.cancel()
            await asyncio.sleep(0)
            assert not waiting.done()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await room.acquire()
    assert room.locked()
