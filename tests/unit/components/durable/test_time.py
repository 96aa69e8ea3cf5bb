"""The private loop's time: that of the latest event. Timers are calls."""

import asyncio
import math
from datetime import timedelta

import pytest

from components.durable import Context
from tests.unit.components.durable.running import finished, started
from tests.unit.components.durable.world import World, ask, reply


def test_the_loops_time_is_that_of_the_latest_event_and_never_goes_back() -> None:
    async def main(context: Context) -> str:
        loop = asyncio.get_running_loop()
        times = [loop.time()]
        for _ in range(3):
            await ask(context)
            times.append(loop.time())
        return str(times)

    execution, _ = started(main)
    for key, after in (("m_0", 2.5), ("m_1", 1.0), ("m_2", 4.0)):
        execution.deliver(reply(key, after=after))
    assert execution.result() == "[0.0, 2.5, 2.5, 4.0]"


def test_a_timer_is_a_call_and_its_firing_a_reply() -> None:
    async def main(_: Context) -> str:
        await asyncio.sleep(1.5)
        return str(asyncio.get_running_loop().time())

    execution = World.execution_of(main)
    (call,) = execution.start()
    assert (call.kind, call.instance, call.type) == ("timers", "clock", "timer.requested")
    assert (call.delay, call.data) == (1.5, b'{"delay":1.5}')
    assert execution.deliver(reply(call.key, type="timer.replied", after=7)) == []
    assert execution.result() == "7.0"


def test_when_a_timer_has_fired_its_time_has_come_however_the_clocks_differ() -> None:
    async def main(_: Context) -> str:
        loop = asyncio.get_running_loop()
        until = loop.time() + 3
        while loop.time() < until:  # noqa: ASYNC110 - the point
            await asyncio.sleep(until - loop.time())
        return str(loop.time())

    execution, (key,) = started(main)
    execution.deliver(reply(key, type="timer.replied", after=2.9))
    assert execution.result() == "3.0"


def test_delays_of_nothing_are_no_calls() -> None:
    async def main(_: Context) -> str:
        await asyncio.sleep(0)
        await asyncio.sleep(-1)
        event = asyncio.Event()
        assert asyncio.get_running_loop().call_later(0, event.set).when() == 0
        await event.wait()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.sleep(1)
        return "done"

    assert finished(main) == "done"


def test_a_timer_cancelled_in_the_step_that_set_it_is_never_published() -> None:
    async def main(context: Context) -> str:
        async with asyncio.timeout(30):  # noqa: ASYNC100 - the point
            pass
        async with asyncio.timeout(30):
            await ask(context)
        return "done"

    execution, keys = started(main)
    assert keys == ["m_1", "m_2"]
    execution.deliver(reply("m_2"))
    assert execution.result() == "done"


def test_a_cancelled_timer_is_not_outstanding_and_its_firing_is_consumed() -> None:
    async def main(context: Context) -> str:
        async with asyncio.timeout(30):
            await ask(context)
        await ask(context)
        return "done"

    execution, keys = started(main)
    assert keys == ["m_0", "m_1"]
    execution.deliver(reply("m_1"))
    assert execution.outstanding == {"m_2"}
    assert execution.deliver(reply("m_0", type="timer.replied", after=31)) == []
    execution.deliver(reply("m_2"))
    assert execution.result() == "done"


def test_an_infinite_delay_is_no_call_and_one_of_nan_is_refused() -> None:
    async def main(context: Context) -> str:
        with pytest.raises(ValueError, match="NaN"):
            asyncio.get_running_loop().call_later(math.nan, print)
        async with asyncio.timeout(math.inf):
            await ask(context)
        return "done"

    assert started(main)[1] == ["m_0"]


def test_durations_are_exact_to_the_microsecond() -> None:
    async def main(context: Context) -> str:
        await ask(context)
        async with asyncio.timeout(10):
            await ask(context)
        return ""

    execution, _ = started(main)
    timer, _call = execution.deliver(reply("m_0", after=timedelta(days=40, microseconds=123457).total_seconds()))
    assert timer.data == b'{"delay":10.0}'
