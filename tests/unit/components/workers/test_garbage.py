"""Garbage in cycles is found when it has become as much as everything else, by its objects or by the memory that it
takes; the process is left as it was."""

import asyncio
import gc
import sys
import weakref

import pytest

from components.workers import garbage
from components.workers.memory import in_use


class Ring:
    """In a cycle with itself."""

    def __init__(self) -> None:
        self.itself = self
        self.more = [str(number) for number in range(1000)]


class LargeRing:
    """Holds one thing that is large."""

    def __init__(self, size: int) -> None:
        self.itself = self
        self.data = b"x" * size


@pytest.fixture
async def collecting(monkeypatch: pytest.MonkeyPatch) -> asyncio.Task[None]:
    """By number at any time, and by size where a test lets memory grow."""
    monkeypatch.setattr(garbage, "_LOOK_S", 0.01)
    monkeypatch.setattr(garbage, "_PAUSE_S", 0.0)
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


async def test_old_garbage_that_holds_much_memory_is_found_soon_however_few_objects_it_is(
    collecting: asyncio.Task[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also again and again: what is in use stays below three times what it was, and what comes between two looks."""
    monkeypatch.setattr(garbage, "_PAUSE_S", 1e9)
    monkeypatch.setattr(garbage, "_PAUSES", 1e9)
    before, most, size = in_use(), 0, in_use() // 20
    held = []
    for _ in range(200):
        LargeRing(size)
        held.append(bytearray(1000))  # what is free between such does not go back to the system by itself
        gc.collect(0)  # now it is old
        most = max(most, in_use())
        await asyncio.sleep(0.015)
    assert most < 4 * before
    await stop(collecting)


async def test_a_process_that_fills_up_is_not_searched_for_the_memory_that_its_objects_take(
    collecting: asyncio.Task[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "_PAUSE_S", 1e9)
    monkeypatch.setattr(garbage, "in_use", lambda: 90 * sys.getallocatedblocks())
    searches = gc.get_stats()[2]["collections"]
    held = [str(number) for number in range(3 * sys.getallocatedblocks())]
    await asyncio.sleep(0.1)
    assert gc.get_stats()[2]["collections"] == searches
    assert held
    await stop(collecting)


async def test_large_things_that_come_and_go_do_not_make_it_search_all_the_time(
    collecting: asyncio.Task[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    used = in_use()
    monkeypatch.setattr(garbage, "_PAUSE_S", 1e9)
    monkeypatch.setattr(garbage, "_PAUSES", 1e9)
    monkeypatch.setattr(garbage, "in_use", lambda: used)
    searches = gc.get_stats()[2]["collections"]
    for _ in range(5):
        used = 10 * used
        await asyncio.sleep(0.03)
    assert gc.get_stats()[2]["collections"] == searches + 1
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
