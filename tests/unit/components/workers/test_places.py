"""Places of a worker's calls: who waits gets all of its own at once, in the order of asking."""

import asyncio

import pytest

from components.workers.places import Places


async def asked(places: Places, *wanted: int) -> list[asyncio.Task[None]]:
    """Those who ask for so many, one after the other."""
    tasks = [asyncio.create_task(places.take(count)) for count in wanted]
    await asyncio.sleep(0)
    return tasks


async def who(tasks: list[asyncio.Task[None]]) -> list[bool]:
    """Which of them have their places."""
    await asyncio.sleep(0)
    return [task.done() and not task.cancelled() for task in tasks]


async def ended(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_no_more_are_taken_than_there_are() -> None:
    places = Places(2)
    tasks = await asked(places, 1, 1, 1)
    assert await who(tasks) == [True, True, False]
    places.give(1)
    assert await who(tasks) == [True, True, True]


async def test_one_that_wants_many_is_not_passed_by_those_that_want_few() -> None:
    places = Places(2)
    await places.take(1)
    tasks = await asked(places, 2, 1)
    assert await who(tasks) == [False, False]
    places.give(1)
    assert await who(tasks) == [True, False]
    places.give(2)
    assert await who(tasks) == [True, True]


async def test_two_that_want_all_places_get_them_one_after_the_other() -> None:
    places = Places(2)
    tasks = await asked(places, 2, 2)
    assert await who(tasks) == [True, False]
    places.give(2)
    assert await who(tasks) == [True, True]


async def test_one_that_is_cancelled_has_none_and_lets_the_next_one_go_on() -> None:
    places = Places(1)
    await places.take(1)
    tasks = await asked(places, 2, 1)
    await ended(tasks[:1])
    places.give(1)
    assert await who(tasks) == [False, True]


async def test_one_that_is_cancelled_when_it_has_just_got_them_gives_them_back() -> None:
    places = Places(1)
    await places.take(1)
    tasks = await asked(places, 1, 1)
    places.give(1)
    tasks[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    assert await who(tasks) == [False, True]


async def test_what_is_seized_is_missing_until_it_is_given_back() -> None:
    places = Places(1)
    await places.take(1)
    places.seize(1)
    tasks = await asked(places, 1)
    places.give(1)
    assert await who(tasks) == [False]
    places.give(1)
    assert await who(tasks) == [True]
