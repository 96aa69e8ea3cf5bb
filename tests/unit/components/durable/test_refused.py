"""What agent code may not do on the private loop, and what has an order there that asyncio does not give it."""

import asyncio
import socket
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from components.durable import Context, NotInAgents
from tests.unit.components.durable.running import finished, started
from tests.unit.components.durable.world import World, ask, reply


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
