"""The private loop: how calls and branches are named, and what of asyncio works on it."""

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import uvloop

from components.durable import Context, Execution
from tests.unit.components.durable.running import finished, started
from tests.unit.components.durable.world import ROLLOUT, START, World, ask, reply


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
