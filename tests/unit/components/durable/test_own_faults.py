"""An agent that waits for nothing, never waits, or exits: its own rollout ends, with an error that says where."""

import asyncio
import re

import pytest

from components.durable import AgentFailed, Context, loop
from components.durable.errors import AgentCancelled, AgentExited, AgentSpins, AgentStuck
from tests.unit.components.durable.running import begun, ended
from tests.unit.components.durable.world import Main, ask, reply


def line_of(main: Main, offset: int) -> str:
    return f"{main.__code__.co_filename}:{main.__code__.co_firstlineno + offset}"


def test_an_agent_that_waits_for_no_call_is_stuck_and_every_branch_is_named_with_its_line() -> None:
    async def child(event: asyncio.Event) -> None:
        await event.wait()

    async def main(_: Context) -> str:
        event = asyncio.Event()
        await asyncio.gather(child(event), child(event))
        return ""

    with pytest.raises(AgentStuck) as caught:
        ended(main).result()
    for branch, code, offset in (("m", main, 2), ("m1", child, 1), ("m2", child, 1)):
        assert f"branch {branch} waits at {line_of(code, offset)}" in str(caught.value)  # type: ignore[arg-type]


def test_an_agent_whose_calls_are_all_cancelled_is_stuck() -> None:
    async def main(context: Context) -> str:
        task = asyncio.create_task(ask(context))
        await ask(context)
        task.cancel()
        await asyncio.Event().wait()
        return ""

    execution = begun(main)
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
        ended(main).result()
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

    execution = begun(main)
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

    begun(main).close()


def test_an_agent_that_ends_cancelled_is_a_failure_not_a_cancellation_of_the_worker() -> None:
    async def main(_: Context) -> str:
        task = asyncio.create_task(asyncio.sleep(100))
        task.cancel()
        await task
        return ""

    with pytest.raises(AgentCancelled):
        ended(main).result()
    assert issubclass(AgentCancelled, AgentFailed)
    assert issubclass(AgentFailed, Exception)
