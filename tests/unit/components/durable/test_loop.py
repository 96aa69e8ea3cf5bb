"""The private loop: what works on it, how calls are named, what is refused."""

import asyncio
import contextvars
import logging
import math
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import uvloop

from components.durable import Context, Execution, NotInAgents
from tests.unit.components.durable.world import ROLLOUT, START, Main, World, ask, reply


def started(main: Main) -> tuple[Execution[str], list[str]]:
    """An execution at its first wait, and the keys of its calls."""
    execution = World.execution_of(main)
    return execution, [call.key for call in execution.start()]


def finished(main: Main) -> str:
    """The result of code that makes no calls."""
    execution, calls = started(main)
    assert calls == []
    return execution.result()


def test_keys_are_the_path_of_the_branch_and_a_counter_in_it() -> None:
    async def leaf(context: Context) -> None:
        await ask(context)
        await ask(context)

    async def middle(context: Context) -> None:
        await asyncio.gather(leaf(context), leaf(context))

    async def main(context: Context) -> str:
        await ask(context)
        await asyncio.gather(middle(context), ask(context))
        return ""

    calls = World(main, trouble=False).made[-1]
    assert {call.key for call in calls} == {"m_0", "m2_0", "m1-1_0", "m1-1_1", "m1-2_0", "m1-2_1"}


def test_a_path_stays_unique_where_a_branch_has_ten_children_and_more() -> None:
    async def eleven(context: Context) -> None:
        await asyncio.gather(*(ask(context) for _ in range(11)))

    async def main(context: Context) -> str:
        await asyncio.gather(*(eleven(context) for _ in range(11)))
        return ""

    _, keys = started(main)
    assert len(set(keys)) == 121
    assert {"m1-10_0", "m11-1_0", "m11-11_0"} < set(keys)


def test_a_prefix_stands_before_each_key() -> None:
    async def main(context: Context) -> str:
        await asyncio.gather(ask(context), asyncio.sleep(1))
        return ""

    execution = Execution(ROLLOUT, main, time=START, prefix="m_3--")
    assert [call.key for call in execution.start()] == ["m_3--m1_0", "m_3--m2_0"]


def test_branches_are_named_by_their_path_unless_the_code_names_them() -> None:
    async def name() -> str:
        return asyncio.current_task().get_name()  # type: ignore[union-attr]

    async def main(_: Context) -> str:
        return " ".join([await name(), *await asyncio.gather(name(), name(), asyncio.create_task(name(), name="x"))])

    assert finished(main) == "m m2 m3 x"


def test_calls_and_tasks_of_plain_callbacks_have_keys_of_their_own() -> None:
    async def main(context: Context) -> str:
        loop = asyncio.get_running_loop()
        tasks: list[asyncio.Task[bytes]] = []
        loop.call_soon(lambda: tasks.append(loop.create_task(ask(context))))
        loop.call_soon(loop.call_later, 5, lambda: None)
        await asyncio.sleep(0)
        await tasks[0]
        return ""

    assert sorted(started(main)[1]) == ["c1_0", "c_0"]


def test_sets_of_branches_and_futures_are_in_the_order_of_creation() -> None:
    async def main(_: Context) -> str:
        loop = asyncio.get_running_loop()
        tasks = [asyncio.create_task(asyncio.sleep(0), name=str(number)) for number in range(50)]
        done, _pending = await asyncio.wait(tasks[::-1])
        futures = [loop.create_future() for _ in range(50)]
        assert list({*futures[25:], *futures[:25]}) == futures
        return " ".join(task.get_name() for task in done)

    assert finished(main) == " ".join(map(str, range(50)))


def test_tasks_of_many_rollouts_do_not_collide() -> None:
    async def main(_: Context) -> str:
        return str(hash(asyncio.current_task()))

    hashes = {Execution(f"run-{number:05d}-00", main, time=START) for number in range(500)}
    for execution in hashes:
        execution.start()
    assert len({execution.result() for execution in hashes}) == 500


# --- time


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


# --- asyncio


def test_locks_queues_events_conditions_and_semaphores_work() -> None:
    async def main(_: Context) -> str:
        log: list[str] = []
        queue: asyncio.Queue[str] = asyncio.Queue(1)
        lock, event, places, condition = asyncio.Lock(), asyncio.Event(), asyncio.Semaphore(1), asyncio.Condition()

        async def produce() -> None:
            for number in range(3):
                await queue.put(str(number))
            event.set()
            async with condition:
                condition.notify_all()

        async def consume() -> None:
            log.extend([await queue.get() for _ in range(3)])
            async with lock, places:
                await event.wait()
                log.append("end")

        async with asyncio.TaskGroup() as group:
            group.create_task(consume())
            async with condition:
                group.create_task(produce())
                await condition.wait()
        return " ".join(log)

    assert finished(main) == "0 1 2 end"


def test_context_variables_are_inherited_by_branches_and_do_not_leak() -> None:
    variable = contextvars.ContextVar("variable", default="unset")

    async def child() -> str:
        seen = variable.get()
        variable.set("child")
        return seen

    async def main(context: Context) -> str:
        seen = variable.get()
        variable.set("main")
        seen = f"{seen} {await asyncio.create_task(child())} {variable.get()}"
        await ask(context)
        return f"{seen} {variable.get()}"

    token = variable.set("worker")
    execution, _ = started(main)
    variable.reset(token)
    execution.deliver(reply("m_0"))
    assert execution.result() == "worker main main main"
    assert variable.get() == "unset"


def test_an_async_generator_dropped_half_way_is_finished_on_its_own_loop() -> None:
    async def main(context: Context) -> str:
        closed = asyncio.Event()

        async def values() -> AsyncIterator[bytes]:
            try:
                while True:
                    yield await ask(context)
            finally:
                await ask(context, b'"bye"')
                closed.set()

        async for _ in values():
            break
        await closed.wait()
        return "closed"

    async def outside() -> str:
        execution, (key,) = started(main)
        (last,) = execution.deliver(reply(key))
        assert (last.key, last.data) == ("g1_0", b'"bye"')
        execution.deliver(reply("g1_0"))
        return execution.result()

    assert asyncio.run(outside()) == "closed"
    assert uvloop.run(outside()) == "closed"


def test_async_generators_of_the_loop_around_are_left_to_it() -> None:
    async def values(ended: "asyncio.Future[object]") -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            ended.set_result(asyncio.get_running_loop())

    async def main(context: Context) -> str:
        return (await ask(context)).decode()

    async def outside() -> None:
        outer = asyncio.get_running_loop()
        ended = outer.create_future()
        execution, _ = started(main)
        async for _ in values(ended):
            break
        execution.deliver(reply("m_0"))
        assert await ended is outer

    asyncio.run(outside())
    uvloop.run(outside())


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run])
def test_the_loop_is_stepped_from_inside_another_and_leaves_it_as_it_was(runner: Callable[..., Any]) -> None:
    async def main(context: Context) -> str:
        inner = asyncio.get_running_loop()
        assert inner.is_running()
        return f"{(await ask(context)).decode()} {inner.is_running()}"

    async def outside() -> None:
        outer, task = asyncio.get_running_loop(), asyncio.current_task()
        execution, _ = started(main)
        assert asyncio.get_running_loop() is outer
        assert asyncio.current_task() is task
        await asyncio.sleep(0)
        execution.deliver(reply("m_0", b"7"))
        assert asyncio.get_running_loop() is outer
        assert execution.result() == "7 True"

    runner(outside())


def test_an_execution_can_be_stepped_from_within_another() -> None:
    async def inner(context: Context) -> str:
        return (await ask(context)).decode()

    async def main(context: Context) -> str:
        execution, _ = started(inner)
        data = await ask(context)
        execution.deliver(reply("m_0", data))
        return execution.result()

    execution, _ = started(main)
    execution.deliver(reply("m_0", b"5"))
    assert execution.result() == "5"


# --- errors that nothing awaits


def test_the_error_of_a_branch_that_nothing_awaits_is_logged_with_its_rollout(caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> None:
        raise ValueError("broken")

    async def main(_: Context) -> str:
        task = asyncio.create_task(broken())
        await asyncio.sleep(0)
        return str(task.done())

    with caplog.at_level(logging.ERROR):
        assert finished(main) == "True"
    (record,) = caplog.records
    assert record.getMessage() == f"rollout {ROLLOUT}: branch m1 failed, and nothing awaits it"
    assert "ValueError: broken" in caplog.text


def test_the_error_of_a_callback_is_logged_and_the_rest_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def main(_: Context) -> str:
        asyncio.get_running_loop().call_soon(int, "x")
        await asyncio.sleep(0)
        return "done"

    assert finished(main) == "done"
    assert "a callback failed" in caplog.text


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(3), KeyboardInterrupt(), ValueError("broken")])
def test_nothing_that_a_callback_raises_reaches_the_worker(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def callback() -> None:
        raise error

    async def main(context: Context) -> str:
        asyncio.get_running_loop().call_soon(callback)
        return (await ask(context)).decode()

    execution, _ = started(main)
    execution.deliver(reply("m_0", b"1"))
    assert execution.result() == "1"
    assert "a callback failed" in caplog.text


@pytest.mark.parametrize("error", [LookupError("worse"), KeyboardInterrupt("worse"), SystemExit("worse")])
def test_nor_does_what_its_handler_raises(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    def handler(_loop: object, _context: object) -> None:
        raise error

    async def main(_: Context) -> str:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(handler)
        loop.call_soon(int, "x")
        await asyncio.sleep(0)
        return "done"

    assert finished(main) == "done"
    assert f"{type(error).__name__}: worse" in caplog.text


def test_the_error_of_a_branch_may_be_looked_at_much_later(caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> None:
        raise ValueError("broken")

    async def main(context: Context) -> str:
        task = asyncio.create_task(broken())
        for _ in range(3):
            await asyncio.gather(*(ask(context) for _ in range(100)))
        try:
            await task
        except ValueError as error:
            return str(error)
        return ""

    world = World(main, trouble=False)
    assert world.outcome == "broken"
    assert caplog.records == []


def test_branches_that_have_ended_are_let_go_while_the_rollout_goes_on() -> None:
    async def main(context: Context) -> str:
        for _ in range(200):
            await asyncio.create_task(ask(context))
        return ""

    execution, keys = started(main)
    for _ in range(150):
        keys = [call.key for call in execution.deliver(reply(keys[0]))]
    assert len(execution._loop.branches) < 30
    execution.close()


def test_agent_code_may_set_a_handler_for_such_errors() -> None:
    async def main(_: Context) -> str:
        loop = asyncio.get_running_loop()
        seen: list[str] = []
        loop.set_exception_handler(lambda _loop, context: seen.append(str(context["exception"])))
        assert loop.get_exception_handler() is not None
        loop.call_soon(int, "x")
        await asyncio.sleep(0)
        return seen[0]

    assert "invalid literal" in finished(main)


# --- what is refused


async def to_thread() -> None:
    await asyncio.to_thread(print)


async def connection() -> None:
    await asyncio.open_connection("127.0.0.1", 1)


async def process() -> None:
    await asyncio.create_subprocess_exec("true")


async def thread() -> None:
    threading.Thread(target=print).start()


async def pool() -> None:
    with ThreadPoolExecutor() as executor:
        executor.submit(print)


async def raw_socket() -> None:
    socket.socket()


async def look_up() -> None:
    socket.getaddrinfo("localhost", 1)


async def command() -> None:
    subprocess.run(["true"], check=True)  # noqa: ASYNC221


async def signals() -> None:
    asyncio.get_running_loop().add_signal_handler(1, print)


async def readers() -> None:
    asyncio.get_running_loop().add_reader(0, print)


async def from_threads() -> None:
    asyncio.get_running_loop().call_soon_threadsafe(print)


def test_the_loop_has_every_method_of_asyncios_and_refuses_what_it_does_not_offer() -> None:
    execution = World.execution_of(lambda _: asyncio.sleep(0, ""))
    offered = {
        "call_at",
        "call_exception_handler",
        "call_later",
        "call_soon",
        "create_future",
        "create_task",
        "default_exception_handler",
        "get_debug",
        "get_exception_handler",
        "get_task_factory",
        "is_closed",
        "is_running",
        "set_exception_handler",
        "time",
    }
    for name in vars(asyncio.AbstractEventLoop):
        if not name.startswith("_") and name not in offered and name != "slow_callback_duration":
            with pytest.raises(NotInAgents, match=f"the event loop's {name}"):
                getattr(execution._loop, name)()


@pytest.mark.parametrize(
    "what",
    [to_thread, connection, process, thread, pool, raw_socket, look_up, command, signals, readers, from_threads],
    ids=lambda what: what.__name__,
)
def test_what_is_no_call_is_refused_with_the_way_out(what: Callable[[], Any]) -> None:
    async def main(_: Context) -> str:
        await what()
        return "it worked"

    with pytest.raises(NotInAgents, match=r"use self\.resources.*docs/environments\.md"):
        finished(main)


def test_the_same_is_free_outside_agents_and_on_other_threads() -> None:
    async def main(context: Context) -> str:
        return (await ask(context)).decode()

    execution, _ = started(main)
    socket.socket().close()
    subprocess.run(["true"], check=True)
    opened: list[bool] = []

    def other() -> None:
        socket.socket().close()
        opened.append(True)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    execution.deliver(reply("m_0", b"1"))
    assert (execution.result(), opened) == ("1", [True])


def test_another_thread_may_open_sockets_while_an_agent_runs() -> None:
    begin, opened = threading.Event(), threading.Event()

    def other() -> None:
        begin.wait(5)
        socket.socket().close()
        opened.set()

    async def main(_: Context) -> str:
        begin.set()
        return str(opened.wait(5))

    thread = threading.Thread(target=other)
    thread.start()
    assert finished(main) == "True"
    thread.join()


# --- asyncio's unordered functions


def test_as_completed_takes_coroutines_in_the_order_of_the_list() -> None:
    async def main(context: Context) -> str:
        each = [ask(context, str(number).encode()) for number in range(30)]
        for one in asyncio.as_completed([*each, each[0]]):
            await one
        return ""

    execution = World.execution_of(main)
    assert [(call.key, call.data) for call in execution.start()] == [
        (f"m{n + 1}_0", str(n).encode()) for n in range(30)
    ]


def test_a_set_of_coroutines_is_refused() -> None:
    async def main(context: Context) -> str:
        each = {ask(context), ask(context)}
        try:
            for one in asyncio.as_completed(each):
                await one
        finally:
            for coroutine in each:
                coroutine.close()
        return ""

    with pytest.raises(TypeError, match="pass a list"):
        finished(main)


@pytest.mark.parametrize("waiting", ["wait", "as_completed"])
def test_a_future_without_an_order_is_refused(waiting: str) -> None:
    async def main(_: Context) -> str:
        gathered = asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))
        if waiting == "wait":
            await asyncio.wait([gathered])
        else:
            for one in asyncio.as_completed([gathered]):
                await one
        return ""

    with pytest.raises(TypeError, match=r"pass asyncio\.create_task"):
        finished(main)


def test_wait_and_as_completed_are_asyncios_own_elsewhere() -> None:
    async def outside() -> None:
        gathered = asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))
        done, pending = await asyncio.wait([gathered], timeout=5)
        assert (done, pending) == ({gathered}, set())
        assert [await one for one in asyncio.as_completed({asyncio.sleep(0, 1)}, timeout=5)] == [1]

    asyncio.run(outside())


def test_durations_are_exact_to_the_microsecond() -> None:
    async def main(context: Context) -> str:
        await ask(context)
        async with asyncio.timeout(10):
            await ask(context)
        return ""

    execution, _ = started(main)
    timer, _call = execution.deliver(reply("m_0", after=timedelta(days=40, microseconds=123457).total_seconds()))
    assert timer.data == b'{"delay":10.0}'
