"""Agent programs for the tests: random trees of asyncio constructs around calls, and the agent that runs one.

Each call's arguments hold all that the program has seen so far, in the order in which it saw it, so that anything that
happens in another order shows in the next call.
"""

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

from components.durable import CallFailed, Context

Program = list[Any]
"""`[name, argument, …]`, where an argument may be a program or a list of programs."""

LEAVES = ("call", "call", "call", "call", "sleep", "nap", "draw", "fail", "later")
ONE = ("timeout", "wait_for", "shield", "try", "stream", "detach")
MANY = ("seq", "seq", "gather", "collect", "group", "first", "all", "completed", "cancel", "queue", "lock", "window")


def generate(rng: random.Random, depth: int = 3) -> Program:
    """A random program."""
    kind = rng.choice((LEAVES, ONE, ONE, MANY, MANY, MANY)) if depth else LEAVES
    name = rng.choice(kind)
    if kind is LEAVES:
        return [name, rng.randint(1, 9)]
    if kind is ONE:
        return [name, rng.randint(1, 9), generate(rng, depth - 1)]
    return [name, [generate(rng, depth - 1) for _ in range(rng.randint(2, 3))]]


def agent(program: Program) -> Callable[[Context], Coroutine[Any, Any, str]]:
    """The agent that runs a program; its result is what the program saw, or how it failed."""

    async def main(context: Context) -> str:
        run = Run(context)
        try:
            await run.run(program)
        except Exception as error:  # noqa: BLE001 - what a program raises is part of what it does
            run.seen.append(describe(error))
        await run.do_call(99)
        return json.dumps(run.seen)

    return main


def describe(error: BaseException) -> str:
    """An exception, with all that a group holds."""
    if isinstance(error, BaseExceptionGroup):
        return f"{type(error).__name__}({', '.join(describe(each) for each in error.exceptions)})"
    return f"{type(error).__name__}({error})"


class Run:
    """Runs the steps of one program."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.seen: list[Any] = []
        self.lock = asyncio.Lock()
        self.places = asyncio.Semaphore(2)

    async def run(self, program: Program) -> Any:
        """Runs a program."""
        step: Callable[..., Awaitable[Any]] = getattr(self, f"do_{program[0]}")
        return await step(*program[1:])

    async def do_call(self, number: int) -> Any:
        data = json.dumps({"number": number, "seen": self.seen}).encode()
        kind, what = (("models", "model"), ("resources", "tool"), ("agents", "agent"))[number % 3]
        reply = json.loads(await self.context.call(kind, "it", f"{what}.requested", data))  # type: ignore[arg-type]
        self.seen.append(reply)
        return reply

    async def do_sleep(self, number: int) -> None:
        await asyncio.sleep(number)
        self.seen.append(f"slept {number}")

    async def do_nap(self, number: int) -> None:
        for _ in range(number):
            await asyncio.sleep(0)
        self.seen.append("napped")

    async def do_draw(self, number: int) -> None:
        self.seen += [self.context.random().random(), str(self.context.uuid()), str(self.context.now())]
        self.seen.append(asyncio.get_running_loop().time() + number)

    async def do_fail(self, number: int) -> None:
        await self.do_call(number)
        raise ValueError(f"failed {number}")

    async def do_later(self, number: int) -> None:
        event = asyncio.Event()
        asyncio.get_running_loop().call_later(number, event.set)
        await event.wait()
        self.seen.append("later")

    async def do_timeout(self, number: int, program: Program) -> None:
        try:
            async with asyncio.timeout(number):
                await self.run(program)
        except TimeoutError:
            self.seen.append("timeout")

    async def do_wait_for(self, number: int, program: Program) -> None:
        try:
            await asyncio.wait_for(self.run(program), number)
        except TimeoutError:
            self.seen.append("wait_for")

    async def do_shield(self, number: int, program: Program) -> None:
        inner = asyncio.create_task(self.run(program))
        try:
            async with asyncio.timeout(number):
                await asyncio.shield(inner)
        except TimeoutError:
            self.seen.append("shielded")
            await inner

    async def do_try(self, number: int, program: Program) -> None:
        try:
            await self.run(program)
        except CallFailed as error:
            self.seen.append(f"{number} {error}")
        except Exception as error:  # noqa: BLE001 - what a program raises is part of what it does
            self.seen.append(describe(error))
        finally:
            await self.do_call(number)

    async def do_stream(self, number: int, program: Program) -> None:
        async def values() -> AsyncIterator[Any]:
            try:
                while True:
                    yield await self.run(program)
            finally:
                self.seen.append("stream closed")

        async for value in values():
            self.seen.append(value)
            number -= 1
            if number % 3 == 0:
                break

    async def do_detach(self, number: int, program: Program) -> None:
        self.kept = asyncio.create_task(self.run(program))
        self.kept.add_done_callback(lambda task: task.cancelled() or task.exception())
        await self.do_call(number)

    async def do_seq(self, programs: list[Program]) -> None:
        for program in programs:
            await self.run(program)

    async def do_gather(self, programs: list[Program]) -> None:
        self.seen.append(await asyncio.gather(*map(self.run, programs)))

    async def do_collect(self, programs: list[Program]) -> None:
        found = await asyncio.gather(*map(self.run, programs), return_exceptions=True)
        self.seen.append([describe(each) if isinstance(each, BaseException) else each for each in found])

    async def do_group(self, programs: list[Program]) -> None:
        async with asyncio.TaskGroup() as group:
            for program in programs:
                group.create_task(self.run(program))

    async def do_first(self, programs: list[Program]) -> None:
        tasks = {asyncio.create_task(self.run(program)) for program in programs}
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        self._settled(done)
        if pending:
            done, _ = await asyncio.wait(pending)
            self._settled(done)

    async def do_all(self, programs: list[Program]) -> None:
        done, pending = await asyncio.wait([asyncio.create_task(self.run(program)) for program in programs], timeout=5)
        self._settled(done)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    def _settled(self, tasks: set[asyncio.Task[Any]]) -> None:
        for task in tasks:
            failed = task.cancelled() or task.exception() is not None
            self.seen.append([task.get_name(), "failed" if failed else task.result()])

    async def do_completed(self, programs: list[Program]) -> None:
        for each in asyncio.as_completed([self.run(program) for program in programs]):
            with contextlib.suppress(ValueError, CallFailed):
                self.seen.append(await each)

    async def do_cancel(self, programs: list[Program]) -> None:
        tasks = [asyncio.create_task(self.run(program)) for program in programs]
        await self.do_call(1)
        for task in tasks:
            task.cancel("enough")
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            self.seen.append(describe(outcome) if isinstance(outcome, BaseException) else outcome)

    async def do_queue(self, programs: list[Program]) -> None:
        queue: asyncio.Queue[Any] = asyncio.Queue(maxsize=1)

        async def produce(program: Program) -> None:
            with contextlib.suppress(Exception):
                await self.run(program)
            await queue.put(program[0])

        async with asyncio.TaskGroup() as group:
            for program in programs:
                group.create_task(produce(program))
            for _ in programs:
                self.seen.append(await queue.get())
                await self.do_call(2)

    async def do_lock(self, programs: list[Program]) -> None:
        async def one(program: Program) -> None:
            async with self.lock:
                await self.do_call(3)
            await self.run(program)

        await asyncio.gather(*map(one, programs))

    async def do_window(self, programs: list[Program]) -> None:
        async def one(program: Program) -> None:
            async with self.places:
                await self.do_call(4)
            await self.run(program)

        await asyncio.gather(*map(one, programs))
