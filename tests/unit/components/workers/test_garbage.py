"""Garbage in cycles is found when it has become as much as everything else; the process is left as it was."""

import asyncio
import gc
import sys
import weakref

import pytest

from components.workers import garbage


class Ring:
    """In a cycle with itself."""

    def __init__(self) -> None:
        self.itself = self
        self.more = [str(number) for number in range(1000)]


@pytest.fixture
async def collecting(monkeypatch: pytest.MonkeyPatch) -> asyncio.Task[None]:
    monkeypatch.setattr(garbage, "_LOOK_S", 0.01)
    task = asyncio.create_task(garbage.collect_garbage())
    await asyncio.sleep(0)
    return task


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def test_old_garbage_in_cycles_is_found_once_there_is_much_of_it(collecting: asyncio.Task[None]) -> None:
    made = sys.getallocatedblocks() // 1000
    rings = [Ring() for _ in range(made)]
    gc.collect()  # now they are old: the searches among the young do not see them
    found = asyncio.Event()
    weakref.finalize(rings[0], found.set)
    del rings
    more = [str(number) for number in range(made * 1000)]
    async with asyncio.timeout(20):
        await found.wait()
    assert more
    await stop(collecting)


async def test_what_stays_is_not_searched_again_and_again(collecting: asyncio.Task[None]) -> None:
    searches = gc.get_stats()[2]["collections"]
    held = [[number] for number in range(sys.getallocatedblocks() // 4)]
    await asyncio.sleep(0.1)
    assert gc.get_stats()[2]["collections"] == searches
    assert held
    await stop(collecting)


async def test_the_thresholds_are_as_before_when_it_ends() -> None:
    before = gc.get_threshold()
    task = asyncio.create_task(garbage.collect_garbage())
    await asyncio.sleep(0)
    assert gc.get_threshold() != before
    await stop(task)
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
