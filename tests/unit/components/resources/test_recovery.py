"""Sessions that are not here, or not as they were, are made again from their history, or lost for a reason."""

import asyncio

import pytest

from components.resources import (
    History,
    ResourcesConfig,
    Runtime,
)
from components.resources.errors import (
    SessionLost,
)
from components.resources.sessions import Place
from tests.unit.components.resources.adder import (
    TASK,
    Adder,
    add,
    call,
    request,
    said,
    seeded,
)


async def test_a_session_is_rebuilt_from_its_seed_and_calls_malformed_ones_included() -> None:
    runtime = Runtime(Adder())
    calls = [add(1), call("add", "{"), call("nothing"), call("fail", '{"how": "value"}'), add(2)]
    await runtime.rebuild("r", History(TASK, calls))
    assert (await runtime.verify("r", request())).reward == 1.0


async def test_a_call_recovers_its_session_in_its_own_turn() -> None:
    runtime, reads = Runtime(Adder()), 0

    async def recover() -> History:
        nonlocal reads
        reads += 1
        await asyncio.sleep(0)
        return History(TASK, [add(1)])

    outputs = await asyncio.gather(*(runtime.call("r", add(number), recover=recover) for number in (10, 20)))
    assert [bytes(output.output) for output in outputs] == [b'"13"', b'"33"']
    assert reads == 1


async def test_a_call_whose_session_lacks_the_one_before_it_is_recovered_and_one_beside_it_is_not() -> None:
    """Calls that do not take the session come between those that do, and need not be in it."""
    runtime, reads = Runtime(Adder()), 0
    await runtime.seed("r", TASK, place=Place("m_0", ""))

    async def recover() -> History:
        nonlocal reads
        reads += 1
        return History(TASK, [add(1), add(10)], last="m_2")

    await runtime.call("r", add(1), recover=recover, place=Place("m_1", "m_0"))
    assert reads == 0
    output = await runtime.call("r", add(100), recover=recover, place=Place("m_3", "m_2"))
    assert (reads, bytes(output.output)) == (1, b'"113"')
    await runtime.call("r", call("nothing"), place=Place("m_4", "m_3"))
    output = await runtime.call("r", add(1000), recover=recover, place=Place("m_5", "m_4"))
    assert (reads, bytes(output.output)) == (1, b'"1113"')


async def test_what_is_here_is_kept_where_the_history_says_that_it_is_the_last() -> None:
    """The call before was answered with an error, and is in no session."""

    async def recover() -> History:
        return History(TASK, [], last="m_0")

    runtime = Runtime(Unrepeatable())
    await runtime.seed("r", TASK, place=Place("m_0", ""))
    await runtime.verify("r", request(), recover=recover, place=Place("m_2", "m_1"))


async def test_a_session_that_is_here_is_not_recovered() -> None:
    async def recover() -> History:
        raise AssertionError("read for nothing")

    runtime = await seeded()
    await runtime.call("r", add(3), recover=recover)
    assert (await runtime.verify("r", request(), recover=recover)).reward == 1.0


async def test_verify_recovers_the_session_too() -> None:
    async def recover() -> History:
        return History(TASK, [add(3)])

    assert (await Runtime(Adder()).verify("r", request(), recover=recover)).reward == 1.0


async def test_a_session_that_cannot_be_recovered_is_lost_with_a_reason() -> None:
    with pytest.raises(SessionLost, match="the session of r is lost: it was never seeded") as loss:
        await Runtime(Adder()).call("r", add(1))
    assert loss.value.call_error().kind == "unavailable"


class Unrepeatable(Adder):
    rebuild = "fail"


async def test_a_component_that_does_not_rebuild_says_so() -> None:
    runtime = Runtime(Unrepeatable())
    with pytest.raises(SessionLost, match=r"Unrepeatable does not rebuild sessions"):
        await runtime.rebuild("r", History(TASK, []))
    await runtime.seed("r", TASK)
    assert await said(runtime, add(1)) == "3"


async def test_a_session_that_had_to_make_room_is_lost_for_that_reason() -> None:
    runtime = Runtime(Unrepeatable(ResourcesConfig(max_sessions=1)))
    for name in ("a", "b"):
        await runtime.seed(name, TASK)
    with pytest.raises(SessionLost, match="let it go for want of room: give it a larger max_sessions, or more workers"):
        await runtime.rebuild("a", History(TASK, []))
    with pytest.raises(SessionLost, match=r"\(rebuild = 'fail'\)$"):
        await runtime.rebuild("never", History(TASK, []))


async def test_sessions_are_bounded_and_the_oldest_is_recovered_when_it_is_needed() -> None:
    async def recover() -> History:
        return History(TASK, [add(1)])

    runtime = Runtime(Adder(ResourcesConfig(max_sessions=2)))
    for name in ("a", "b", "c"):
        await runtime.seed(name, TASK)
        await runtime.call(name, add(1))
    assert [runtime.has(name) for name in ("a", "b", "c")] == [False, True, True]
    output = await runtime.call("a", add(1), recover=recover)
    assert bytes(output.output) == b'"4"'


async def test_a_dropped_session_is_gone() -> None:
    runtime = await seeded()
    runtime.drop("r")
    runtime.drop("r")
    assert not runtime.has("r")
