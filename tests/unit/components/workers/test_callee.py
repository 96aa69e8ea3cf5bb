"""Places for calls in progress: a call that waits to be tried again gives its own back meanwhile."""

import asyncio
from typing import cast

import pytest

from bus import Bus, Delivery
from components.workers.callee import Callee, Reply


async def never(_delivery: Delivery, _data: bytes) -> Reply:
    raise AssertionError


def all_taken(callee: Callee) -> bool:
    """Whether the one place of it is taken."""
    return callee._places.free <= 0


async def test_a_call_that_waits_holds_no_place_and_has_one_again_when_it_goes_on() -> None:
    callee = Callee(cast("Bus", None), never, concurrency=1)
    held = []

    async def call() -> None:
        await callee._places.take(1)
        await callee.wait(0.01)
        held.append(all_taken(callee))
        callee._places.give(1)

    async with asyncio.timeout(10):
        calls = [asyncio.create_task(call()) for _ in range(2)]
        await asyncio.sleep(0)
        assert len(callee._waiting) == len(calls)
        await asyncio.gather(*calls)
    assert held == [True, True]
    assert not all_taken(callee)


@pytest.mark.parametrize("seconds", [0.0, 600.0], ids=["for a place", "to be tried again"])
async def test_a_call_that_is_cancelled_while_it_waits_ends_at_once_and_leaves_as_many_places(seconds: float) -> None:
    callee = Callee(cast("Bus", None), never, concurrency=1)

    async def call() -> None:
        await callee._places.take(1)
        try:
            await callee.wait(seconds)
        finally:
            callee._places.give(1)

    waiting = asyncio.create_task(call())
    async with asyncio.timeout(10):
        await asyncio.sleep(0)
        await callee._places.take(1)  # while the call waits
        for _ in range(3):
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert all_taken(callee)
    callee._places.give(1)
    assert callee._places.free == 1
