"""Places for calls in progress: a call that waits to be tried again gives its own back meanwhile."""

import asyncio
from typing import cast

import pytest

from bus import Bus, Delivery
from components.workers.callee import Callee, Reply
from components.workers.suspects import Suspect


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


async def test_suspects_are_begun_ever_more_at_once_as_long_as_they_end_no_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Up to the root of the worker's places; what has ended a worker already has a pause of its own."""
    monkeypatch.setattr("components.workers.callee.GRACE_S", 0.0)
    callee = Callee(cast("Bus", None), never, concurrency=64)
    first, again = (Suspect(1, ended, exhausted=False, alone=False, places=1) for ended in (0, 1))
    begun = [asyncio.create_task(asyncio.Event().wait()) for _ in range(40)]
    pauses = []
    for number, task in enumerate(begun[:31], 1):
        await callee._pause(cast("asyncio.Task[None]", task), first)
        if not callee._begun:
            pauses.append(number)
    assert pauses == [1, 3, 7, 15, 23, 31]
    for task in begun[31:]:
        await callee._pause(cast("asyncio.Task[None]", task), again)
        assert not callee._begun
    for task in begun:
        task.cancel()
    await asyncio.gather(*begun, return_exceptions=True)
