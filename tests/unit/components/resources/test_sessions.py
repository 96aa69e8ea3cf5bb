"""Sessions are taken in turns, bounded in number, and never let go while someone is on them."""

import asyncio

from components.resources.sessions import Sessions


async def test_turns_come_in_the_order_of_asking() -> None:
    sessions, order = Sessions(10), []

    async def turn(number: int) -> None:
        async with sessions.use("s"):
            await asyncio.sleep(0)
            order.append(number)

    await asyncio.gather(*(turn(number) for number in range(20)))
    assert order == list(range(20))


async def test_the_least_recently_used_goes_first() -> None:
    sessions = Sessions(2)
    for key in ("a", "b"):
        async with sessions.use(key) as held:
            held.keep(key)
    async with sessions.use("a"):
        pass
    async with sessions.use("c") as held:
        held.keep("c")
    assert [key for key in "abc" if sessions.has(key)] == ["a", "c"]


async def test_a_session_in_use_stays_however_many_there_are() -> None:
    sessions = Sessions(1)
    async with sessions.use("a") as first:
        first.keep("a")
        async with sessions.use("b") as second:
            second.keep("b")
            assert sessions.has("a")
            assert sessions.has("b")
    async with sessions.use("c") as third:
        third.keep("c")
    assert [key for key in "abc" if sessions.has(key)] == ["c"]


async def test_a_dropped_session_is_empty_for_those_who_wait_and_they_still_take_turns() -> None:
    sessions, seen = Sessions(10), []

    async def look() -> None:
        async with sessions.use("s") as held:
            seen.append((held.kept, held.state))
            held.keep("new")

    async with sessions.use("s") as held:
        held.keep("old")
        waiting = [asyncio.create_task(look()) for _ in range(2)]
        await asyncio.sleep(0)
        sessions.drop("s")
        assert not sessions.has("s")
    await asyncio.gather(*waiting)
    assert seen == [(False, None), (True, "new")]


async def test_a_session_that_was_never_kept_leaves_nothing_behind() -> None:
    sessions = Sessions(10)
    first = sessions.use("s")
    async with first:
        pass
    assert sessions.use("s") is not first


async def test_one_who_gives_up_waiting_leaves_the_session_to_the_others() -> None:
    sessions = Sessions(1)
    async with sessions.use("a") as held:
        held.keep("a")
        waiting = asyncio.create_task(sessions.use("a").__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
    assert held.idle
    assert sessions.has("a")
