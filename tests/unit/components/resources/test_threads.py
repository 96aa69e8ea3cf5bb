"""Plain functions run in a bounded number of daemon threads, and one that hangs costs nobody else a place."""

import asyncio
import threading
from contextvars import ContextVar
from functools import partial

import pytest

from components.resources.threads import Overdue, Threads

LONG_S = 30.0


async def test_a_function_runs_beside_the_loop_and_its_result_comes_back() -> None:
    thread = await Threads(1).run(threading.current_thread, LONG_S)
    assert thread is not threading.current_thread()
    assert thread.daemon


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, TimeoutError])
async def test_what_the_function_raises_comes_back(error: type[BaseException]) -> None:
    def fail() -> None:
        raise error("no")

    with pytest.raises(error, match="no"):
        await Threads(1).run(fail, LONG_S)


async def test_a_generator_exit_comes_back_as_an_error_that_a_future_can_carry() -> None:
    def fail() -> None:
        raise GeneratorExit

    with pytest.raises(RuntimeError, match="GeneratorExit was raised"):
        await Threads(1).run(fail, LONG_S)


async def test_a_stop_iteration_comes_back_as_an_error_that_a_future_can_carry() -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        await Threads(1).run(partial(next, iter(())), LONG_S)


async def test_no_more_than_the_limit_run_at_once_and_all_come_to_their_end() -> None:
    threads, lock = Threads(3), threading.Lock()
    running = most = 0

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.002)
        with lock:
            running -= 1

    await asyncio.gather(*(threads.run(work, LONG_S) for _ in range(50)))
    assert (running, most <= 3) == (0, True)


async def test_threads_are_used_again() -> None:
    threads = Threads(4)
    assert len({await threads.run(threading.get_ident, LONG_S) for _ in range(20)}) == 1


async def test_a_function_that_hangs_ends_with_overdue_and_gives_its_place_back() -> None:
    threads, go_on = Threads(1), threading.Event()
    with pytest.raises(Overdue):
        await threads.run(go_on.wait, 0.01)
    assert await threads.run(lambda: "next", LONG_S) == "next"
    go_on.set()


async def test_the_wait_for_a_place_does_not_count_as_the_functions_time(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, go_on = Threads(1), threading.Event()
    first = asyncio.create_task(threads.run(go_on.wait, 1000.0))
    second = asyncio.create_task(threads.run(lambda: "done", LONG_S))
    await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    clock = loop.time
    monkeypatch.setattr(loop, "time", lambda: clock() + 2 * LONG_S)
    await asyncio.sleep(0)
    go_on.set()
    assert (await first, await second) == (True, "done")


async def test_a_cancelled_call_gives_its_place_back() -> None:
    threads, begun, go_on = Threads(1), threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        go_on.wait()

    call = asyncio.create_task(threads.run(hang, LONG_S))
    await asyncio.to_thread(begun.wait)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await threads.run(lambda: "next", LONG_S) == "next"
    go_on.set()


async def test_context_variables_reach_the_function() -> None:
    name = ContextVar("name", default="")
    name.set("here")
    assert await Threads(1).run(name.get, LONG_S) == "here"
