"""One execution: results, errors, cancellation, ends, limits."""

import asyncio
import contextlib
import gc
import re
import tracemalloc
import weakref

import pytest

from components.durable import AgentFailed, CallFailed, Context, Execution, UnknownReply, loop
from components.durable.errors import AgentCancelled, AgentExited, AgentSpins, AgentStuck
from contracts.events import CallError
from tests.unit.components.durable.world import START, Main, World, ask, reply

FAILED = b'{"kind":"tool_error","message":"it broke","details":{"tool":"add"}}'


def started(main: Main) -> Execution[str]:
    execution = World.execution_of(main)
    execution.start()
    return execution


def finished(main: Main) -> Execution[str]:
    execution = started(main)
    assert execution.done
    return execution


def line_of(main: Main, offset: int) -> str:
    return f"{main.__code__.co_filename}:{main.__code__.co_firstlineno + offset}"


# --- results and errors


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
        finished(main).result()


def test_a_failed_call_raises_its_typed_error() -> None:
    async def main(context: Context) -> str:
        try:
            await ask(context)
        except CallFailed as failed:
            errors.append(failed.error)
            return f"{failed.call_key} {failed}"
        return "no error"

    errors: list[CallError] = []

    execution = started(main)
    execution.deliver(reply("m_0", FAILED, type="model.failed"))
    assert execution.result() == "m_0 tool_error: it broke"
    assert errors == [CallError(kind="tool_error", message="it broke", details={"tool": "add"})]


def test_a_failed_reply_that_is_no_error_is_an_internal_one() -> None:
    async def main(context: Context) -> str:
        await ask(context)
        return ""

    execution = started(main)
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

    execution = started(main)
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

    execution = started(main)
    assert [call.key for call in execution.deliver(reply("m1_0", FAILED, type="model.failed"))] == ["m1_1"]
    execution.deliver(reply("m_0"))
    assert execution.result() == "True"


@pytest.mark.parametrize("key", ["m_7", "m_0"])
def test_a_reply_to_no_outstanding_call_is_an_error(key: str) -> None:
    async def main(context: Context) -> str:
        await ask(context)
        await ask(context)
        return ""

    execution = started(main)
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


# --- ends


def test_branches_that_still_run_when_the_main_one_ends_are_cancelled_in_order() -> None:
    ended: list[str] = []

    async def forever(name: str) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append(name)

    async def main(_: Context) -> str:
        for name in "abcdefghijklmnopqrstuvwxyz":
            asyncio.create_task(forever(name))  # noqa: RUF006 - the loop holds it
        await asyncio.sleep(0)
        return "done"

    assert finished(main).result() == "done"
    assert "".join(ended) == "abcdefghijklmnopqrstuvwxyz"


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

    execution = started(main)
    execution.deliver(reply("m_0"))
    assert execution.done
    assert execution.deliver(reply("m1_0")) == []
    with pytest.raises(UnknownReply):
        execution.deliver(reply("m1_0"))


@pytest.mark.parametrize("step", ["before", "waiting"])
def test_a_closed_execution_has_ended_without_a_result(step: str) -> None:
    ended: list[str] = []

    async def main(context: Context) -> str:
        try:
            await ask(context)
        finally:
            ended.append("main")
            await ask(context)
            ended.append("never")
        return ""

    execution = World.execution_of(main)
    if step == "waiting":
        execution.start()
    execution.close()
    execution.close()
    assert execution.done
    assert ended == ([] if step == "before" else ["main"])
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
        execution = started(code)
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
        execution = started(main)
        execution.deliver(reply("m1_0"))
        execution.deliver(reply("m2_0", type="timer.replied"))
        assert execution.result() == ""
        assert alive[0]() is None
        reference = weakref.ref(execution._main)
        del execution
        assert reference() is None
    finally:
        gc.enable()


# --- failures of the code's own making


def test_an_agent_that_waits_for_no_call_is_stuck_and_every_branch_is_named_with_its_line() -> None:
    async def child(event: asyncio.Event) -> None:
        await event.wait()

    async def main(_: Context) -> str:
        event = asyncio.Event()
        await asyncio.gather(child(event), child(event))
        return ""

    with pytest.raises(AgentStuck) as caught:
        finished(main).result()
    for branch, code, offset in (("m", main, 2), ("m1", child, 1), ("m2", child, 1)):
        assert f"branch {branch} waits at {line_of(code, offset)}" in str(caught.value)  # type: ignore[arg-type]


def test_an_agent_whose_calls_are_all_cancelled_is_stuck() -> None:
    async def main(context: Context) -> str:
        task = asyncio.create_task(ask(context))
        await ask(context)
        task.cancel()
        await asyncio.Event().wait()
        return ""

    execution = started(main)
    execution.deliver(reply("m_0"))
    with pytest.raises(AgentStuck):
        execution.result()


@pytest.mark.parametrize("how", ["sleep", "done future", "tasks"])
def test_an_agent_that_never_waits_for_a_call_is_stopped(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MAX_STEPS", 2_000)

    async def main(_: Context) -> str:
        while True:
            if how == "sleep":
                await asyncio.sleep(0)
            elif how == "tasks":
                await asyncio.gather(asyncio.sleep(0))
            else:
                event = asyncio.Event()
                asyncio.get_running_loop().call_soon(event.set)
                await event.wait()

    with pytest.raises(AgentSpins, match="2000 steps without waiting for a call") as caught:
        finished(main).result()
    if how != "tasks":
        assert f"branch m is at {line_of(main, {'sleep': 3, 'done future': 9}[how])}" in str(caught.value)


@pytest.mark.parametrize(
    "signal", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), BaseException("odd")], ids=repr
)
@pytest.mark.parametrize("step", ["main", "branch", "after a call"])
def test_an_agent_that_exits_ends_its_own_rollout_only(step: str, signal: BaseException) -> None:
    async def leave() -> None:
        raise signal

    async def main(context: Context) -> str:
        if step == "after a call":
            await ask(context)
        if step == "branch":
            await asyncio.create_task(leave())
        raise signal

    execution = started(main)
    if step == "after a call":
        execution.deliver(reply("m_0"))
    with pytest.raises(AgentExited, match=re.escape(repr(signal))):
        execution.result()


@pytest.mark.parametrize("signal", [SystemExit, KeyboardInterrupt])
def test_a_branch_that_exits_while_its_rollout_is_closed_ends_itself_only(signal: type[BaseException]) -> None:
    async def main(context: Context) -> str:
        try:
            return (await ask(context)).decode()
        finally:
            raise signal

    started(main).close()


def test_an_agent_that_ends_cancelled_is_a_failure_not_a_cancellation_of_the_worker() -> None:
    async def main(_: Context) -> str:
        task = asyncio.create_task(asyncio.sleep(100))
        task.cancel()
        await task
        return ""

    with pytest.raises(AgentCancelled):
        finished(main).result()
    assert issubclass(AgentCancelled, AgentFailed)
    assert issubclass(AgentFailed, Exception)


# --- size


def test_e13_a_suspended_rollout_takes_less_than_8_kb() -> None:
    async def main(context: Context) -> str:
        async def responses() -> str:
            async with asyncio.timeout(60):
                return (await ask(context)).decode()

        return await responses()

    started(main).close()
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
