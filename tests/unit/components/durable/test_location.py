"""Which line an error names: the agent's, not the plumbing's."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import components.agents
from components.durable import AgentFailed, Context, NondeterminismError, location, reexecute
from components.durable.history import RecordedCall
from tests.unit.components.durable.world import Main, World, history

TOOLKIT_FILE = str(Path(components.agents.__file__ or "").parent / "fake.py")
TOOLKIT: dict[str, Any] = {"__name__": "components.agents.fake"}
SOURCE = """
async def ask(context):
    return await context.call("models", "it", "model.requested", b"1")

async def run(context):
    return await ask(context)

async def wait(event):
    await event.wait()
"""
exec(compile(SOURCE, TOOLKIT_FILE, "exec"), TOOLKIT)
toolkit_ask: Callable[[Context], Any] = TOOLKIT["ask"]


async def plain(context: Context) -> str:
    await toolkit_ask(context)
    return ""


async def helper(context: Context) -> str:
    return await plain(context)


async def in_branches(context: Context) -> str:
    await asyncio.gather(
        toolkit_ask(context),
        asyncio.gather(toolkit_ask(context)),
    )
    return ""


async def in_nested_branches(context: Context) -> str:
    async def middle() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(toolkit_ask(context))

    await asyncio.create_task(middle())
    return ""


def bare(context: Context) -> Any:
    return context.call("models", "it", "model.requested", b"1")


def line(code: Callable[..., Any], offset: int) -> tuple[str, int]:
    return __file__, code.__code__.co_firstlineno + offset


PLACES: list[tuple[Main, str, tuple[str, int]]] = [
    (plain, "m_0", line(plain, 1)),
    (helper, "m_0", line(plain, 1)),
    (in_branches, "m1_0", line(in_branches, 1)),
    (in_branches, "m2_0", line(in_branches, 1)),
    (in_nested_branches, "m1-1_0", line(in_nested_branches, 2)),
    (TOOLKIT["run"], "m_0", (TOOLKIT_FILE, 6)),
    (bare, "m_0", line(bare, 0)),
]


@pytest.mark.parametrize(("main", "key", "place"), PLACES)
def test_a_departure_names_the_agents_line_that_led_to_the_call(main: Main, key: str, place: tuple[str, int]) -> None:
    edited = RecordedCall(key=key, kind="models", instance="it", type="model.requested", data=b"2", seq=1)
    with pytest.raises(NondeterminismError) as caught:
        reexecute(World.execution_of(main), history([edited]))
    assert caught.value.call_key == key
    found = caught.value.file, caught.value.line
    if main is in_nested_branches:  # the end or the start of `async with`, by the version of Python
        assert found[1] in {place[1], place[1] + 1}
    else:
        assert found == place


@pytest.mark.parametrize(("main", "place"), [(plain, line(plain, 1)), (helper, line(plain, 1))])
def test_where_an_execution_waits_is_a_line_of_the_agent(main: Main, place: tuple[str, int]) -> None:
    execution = World.execution_of(main)
    execution.start()
    assert execution.where() == execution.where("m_0") == place
    execution.close()
    assert execution.where() == (__file__, main.__code__.co_firstlineno)


@pytest.mark.parametrize(("main", "key", "place"), PLACES)
def test_a_call_waits_at_the_agents_line_that_led_to_it_and_so_does_its_branch(
    main: Main, key: str, place: tuple[str, int]
) -> None:
    """Of `gather` too, whose branches are the toolkit's code alone."""
    execution = World.execution_of(main)
    execution.start()
    waits = execution.where(key)
    frames = dict(execution.stacks())[key.partition("_")[0]]
    assert waits[0] == place[0]
    assert waits[1] - place[1] in ({0, 1} if main is in_nested_branches else {0})
    assert waits == (location.place(frames) if frames else location.definition(main))
    execution.close()


def test_a_stuck_agent_is_named_by_its_own_line_too() -> None:
    async def main(_: Context) -> str:
        await TOOLKIT["wait"](asyncio.Event())
        return ""

    execution = World.execution_of(main)
    execution.start()
    with pytest.raises(AgentFailed, match=f"branch m waits at {__file__}:{main.__code__.co_firstlineno + 1}$"):
        execution.result()
