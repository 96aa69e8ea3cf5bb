"""Errors that nothing awaits: they are logged, and harm nobody else."""

import asyncio
import logging

import pytest

from components.durable import Context
from tests.unit.components.durable.running import finished, started
from tests.unit.components.durable.world import ROLLOUT, World, ask, reply


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
