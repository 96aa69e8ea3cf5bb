"""One execution: results, errors, cancellation, ends, limits."""

import asyncio
import contextlib
import gc
import tracemalloc
import weakref

import pytest

from components.durable import CallFailed, Context, Execution, UnknownReply, loop
from components.durable.errors import AgentCancelled
from contracts.events import CallError
from tests.unit.components.durable.running import begun, ended
from tests.unit.components.durable.world import START, World, ask, reply

FAILED = b'{"kind":"tool_error","message":"it broke","details":{"tool":"add"}}'


def test_the_result_is_what_the_code_returns() -> None:
    async def main(context: Context) -> str:
        return (await ask(context, b'"question"')).decode()

    execution = World.execution_of(main)
    (call,) = execution.start()
    assert (call.key, call.kind, call.instance, call.type) == ("m_0", "models", "it", "model.requested")
    assert (call.data, call.cause) == (b'"question"', "e0")
    assert execution.outstanding == {"m_0"}
    with pytest.raises(asyncio.InvalidStateError):
        execution.result()
    assert execution.deliver(reply("m_0", b'"answer"')) == []
    assert execution.done
    assert execution.result() == '"answer"'
    assert execution.outstanding == set()


def test_what_the_code_raises_is_raised_by_result() -> None:
    async def main(_: Context) -> str:
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        ended(main).result()


def test_a_failed_call_raises_its_typed_error() -> None:
    async def main(context: Context) -> str:
        try:
            await ask(context)
        except CallFailed as failed:
            errors.append(failed.error)
            return f"{failed.call_key} {failed}"
        return "no error"

    errors: list[CallError] = []

    execution = begun(main)
    execution.deliver(reply("m_0", FAILED, type="model.failed"))
    assert execution.result() == "m_0 tool_error: it broke"
    assert errors == [CallError(kind="tool_error", message="it broke", details={"tool": "add"})]


def test_a_failed_reply_that_is_no_error_is_an_internal_one() -> None:
    async def main(context: Context) -> str:
        await ask(context)
        return ""

    execution = begun(main)
    execution.deliver(reply("m_0", b'"oops"', type="model.failed"))
    with pytest.raises(CallFailed, match="no CallError") as caught:
        execution.result()
    assert caught.value.error.kind == "internal"


def test_errors_of_several_branches_come_as_a_group_and_can_be_caught_by_kind() -> None:
    async def main(context: Context) -> str:
        caught: list[str] = []
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(ask(context))
                group.create_task(asyncio.sleep(100))
        except* CallFailed as failed:
            caught += [str(each) for each in failed.exceptions]
        async with asyncio.TaskGroup() as group:
            group.create_task(ask(context))
        return caught[0]

    execution = begun(main)
    execution.deliver(reply("m1_0", FAILED, type="model.failed"))
    execution.deliver(reply("m3_0", FAILED, type="model.failed"))
    with pytest.raises(ExceptionGroup) as caught:
        execution.result()
    assert [type(each) for each in caught.value.exceptions] == [CallFailed]


def test_except_exception_around_an_await_swallows_errors_but_no_cancellation() -> None:
    async def stubborn(context: Context) -> None:
        for _ in range(3):
            with contextlib.suppress(Exception):
                await ask(context)

    async def main(context: Context) -> str:
        task = asyncio.create_task(stubborn(context))
        await ask(context)
        task.cancel()
        await asyncio.wait([task])
        return str(task.cancelled())

    execution = begun(main)
    assert [call.key for call in execution.deliver(reply("m1_0", FAILED, type="model.failed"))] == ["m1_1"]
    execution.deliver(reply("m_0"))
    assert execution.result() == "True"


@pytest.mark.parametrize("key", ["m_7", "m_0"])
def test_a_reply_to_no_outstanding_call_is_an_error(key: str) -> None:
    async def main(context: Context) -> str:
        await ask(context)
        await ask(context)
        return ""

    execution = begun(main)
    execution.deliver(reply("m_0"))
    with pytest.raises(UnknownReply) as caught:
        execution.deliver(reply(key))
    assert caught.value.call_key == key
    assert execution.outstanding == {"m_1"}


def test_a_reply_names_the_cause_of_the_calls_that_follow_it() -> None:
    async def main(context: Context) -> str:
        await asyncio.gather(ask(context), ask(context))
        await ask(context)
        return ""

    execution = World.execution_of(main)
    assert [call.cause for call in execution.start()] == ["e0", "e0"]
    world = World(main, trouble=False)
    assert world.made[-1][-1].cause == world.log[3].id  # type: ignore[union-attr]


def test_branches_that_still_run_when_the_main_one_ends_are_cancelled_in_order() -> None:
    order: list[str] = []

    async def forever(name: str) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            order.append(name)

    async def main(_: Context) -> str:
        for name in "abcdefghijklmnopqrstuvwxyz":
            asyncio.create_task(forever(name))  # noqa: RUF006 - the loop holds it
        await asyncio.sleep(0)
        return "done"

    assert ended(main).result() == "done"
    assert "".join(order) == "abcdefghijklmnopqrstuvwxyz"


def test_what_branches_do_to_clean_up_is_part_of_the_rollout() -> None:
    async def child(context: Context) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await ask(context, b'"bye"')

    async def main(context: Context) -> str:
        task = asyncio.create_task(child(context))
        await asyncio.sleep(0)
        return task.get_name()

    execution = World.execution_of(main)
    (call,) = execution.start()
    assert (call.key, call.data) == ("m1_0", b'"bye"')
    assert not execution.done
    execution.deliver(reply("m1_0"))
    assert execution.result() == "m1"


def test_calls_and_timers_that_nothing_waits_for_at_the_end_are_not_published() -> None:
    async def main(context: Context) -> str:
        asyncio.get_running_loop().call_later(5, print)
        task = asyncio.create_task(ask(context))
        await asyncio.sleep(0)
        return task.get_name()

    execution = World.execution_of(main)
    assert execution.start() == []
    assert execution.result() == "m1"


def test_a_late_reply_after_the_end_is_consumed() -> None:
    async def main(context: Context) -> str:
        task = asyncio.create_task(ask(context))
        await ask(context)
        return task.get_name()

    execution = begun(main)
    execution.deliver(reply("m_0"))
    assert execution.done
    assert execution.deliver(reply("m1_0")) == []
    with pytest.raises(UnknownReply):
        execution.deliver(reply("m1_0"))


@pytest.mark.parametrize("step", ["before", "waiting"])
def test_a_closed_execution_has_ended_without_a_result(step: str) -> None:
    order: list[str] = []

    async def main(context: Context) -> str:
        try:
            await ask(context)
        finally:
            order.append("main")
            await ask(context)
            order.append("never")
        return ""

    execution = World.execution_of(main)
    if step == "waiting":
        execution.start()
    execution.close()
    execution.close()
    assert execution.done
    assert order == ([] if step == "before" else ["main"])
    assert execution.outstanding == set()
    with pytest.raises(AgentCancelled, match="closed before its agent had ended"):
        execution.result()


def test_closing_ends_code_that_resists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MAX_STEPS", 2_000)

    async def main(context: Context) -> str:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await ask(context)

    async def sleeper(_: Context) -> str:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(100)
        return ""

    for code in (main, sleeper):
        execution = begun(code)
        execution.close()
        assert execution.done


def test_what_has_ended_is_freed_without_the_garbage_collector() -> None:
    class Kept:
        pass

    async def main(context: Context) -> str:
        kept = Kept()
        alive.append(weakref.ref(kept))
        await asyncio.gather(ask(context), asyncio.sleep(5))
        return ""

    alive: list[weakref.ref[Kept]] = []
    gc.collect()
    gc.disable()
    try:
        execution = begun(main)
        execution.deliver(reply("m1_0"))
        execution.deliver(reply("m2_0", type="timer.replied"))
        assert execution.result() == ""
        assert alive[0]() is None
        reference = weakref.ref(execution._main)
        del execution
        assert reference() is None
    finally:
        gc.enable()


def test_e13_a_suspended_rollout_takes_less_than_8_kb() -> None:
    async def main(context: Context) -> str:
        async def responses() -> str:
            async with asyncio.timeout(60):
                return (await ask(context)).decode()

        return await responses()

    begun(main).close()
    gc.collect()
    tracemalloc.start()
    executions = [Execution(f"run-{number:05d}-00", main, time=START) for number in range(300)]
    for execution in executions:
        execution.start()
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert used / len(executions) < 8_000
    for execution in executions:
        execution.close()
