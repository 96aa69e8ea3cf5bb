"""Where do plain (`def`) tools and verifiers run, and what becomes of one that never ends?

A bounded number of daemon threads, so that an author's code neither blocks the event loop nor keeps the process from
ending. A call that is cancelled gives its place back at once; its thread cannot be stopped and ends by itself when
the call does. Used by the runtime; it knows nothing of sessions.
"""

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TypeVar

T = TypeVar("T")

_Tell = Callable[[], None]
_Job = Callable[[], _Tell]


class Overdue(Exception):
    """The function is still running at its deadline."""


class Threads:
    """Runs functions in at most `limit` threads beside those that hang."""

    def __init__(self, limit: int) -> None:
        self._places = asyncio.Semaphore(limit)
        self._limit = limit
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._lock = Lock()
        self._idle = 0

    async def run(self, function: Callable[[], T], deadline_s: float) -> T:
        """What `function` returns or raises, `SystemExit` and the like included.

        Raises `Overdue` `deadline_s` seconds after it began to run; the wait for a place does not count.
        """
        loop = asyncio.get_running_loop()
        async with self._places:
            done: asyncio.Future[T] = loop.create_future()
            self._hand_over(partial(_run, loop, done, partial(copy_context().run, function)))
            timer = loop.call_later(deadline_s, _expire, done)
            try:
                return await done
            finally:
                timer.cancel()

    def _hand_over(self, job: _Job) -> None:
        with self._lock:
            if self._idle:
                self._idle -= 1
                self._jobs.put(job)
                return
        Thread(target=self._work, args=(job,), name="resources", daemon=True).start()

    def _work(self, job: _Job) -> None:
        while True:
            tell = job()
            with self._lock:
                stays = self._idle < self._limit
                self._idle += stays
            tell()  # only now, so that the caller's next function finds this thread idle
            if not stays:
                return
            job = self._jobs.get()


def _run(loop: asyncio.AbstractEventLoop, done: "asyncio.Future[T]", function: Callable[[], T]) -> _Tell:
    settle: Callable[[], None]
    try:
        settle = partial(_succeed, done, function())
    except BaseException as error:  # noqa: BLE001 - whatever ended the call belongs to its caller
        settle = partial(_fail, done, error)
    return partial(_tell, loop, settle)


def _tell(loop: asyncio.AbstractEventLoop, settle: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:
        return  # the loop is closed: nobody waits any more


def _succeed(done: "asyncio.Future[T]", result: T) -> None:
    if not done.done():
        done.set_result(result)


def _fail(done: "asyncio.Future[T]", error: BaseException) -> None:
    if not done.done():
        signal = isinstance(error, StopIteration | GeneratorExit)  # a future cannot carry them to who awaits it
        done.set_exception(RuntimeError(f"{type(error).__name__} was raised") if signal else error)


def _expire(done: "asyncio.Future[T]") -> None:
    _fail(done, Overdue())
