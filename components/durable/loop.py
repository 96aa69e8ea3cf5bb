"""The deterministic event loop that runs one rollout's agent code.

`Execution` steps it: `run` works off the ready queue until every branch waits, then returns. It has no sockets, no
threads and no clock: its time is the time of the latest reply, its timers are calls. Nothing in it depends on the
process that it runs in, so that the same code with the same replies in the same order always makes the same calls.
It never does I/O.

A *branch* is an asyncio task. The main branch is `m`, its n-th task `m1`, that one's second `m1-2`; a call's key is
`<branch>_<n>`, n counting the calls of that branch from 0. So keys do not depend on what finishes first. What is done
in a plain callback, outside all tasks, counts as the branch `c`; the clean-up of an async generator that was dropped
half-way as a task of the branch `g`.
"""

import asyncio
import contextvars
import logging
import math
import zlib
from asyncio import _set_running_loop
from asyncio.events import _get_running_loop
from collections.abc import AsyncGenerator, Callable, Coroutine
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from components.durable import asyncgens, location
from components.durable.branches import Branch, Handle, Outside, Promise, Timer
from components.durable.calls import CLOCK, Call
from components.durable.errors import AgentSpins, Departure, NotInAgents
from contracts.events import Kind

T = TypeVar("T")

MAX_STEPS: Final = 100_000
"""Steps of the ready queue that agent code may take after one reply: some tenths of a second of its worker's time."""

MAX_NAMED: Final = 10
"""Branches that an error names at most."""

_LOGGER = logging.getLogger("jetgym.durable")
_ENCODE = msgspec.json.Encoder().encode


class RolloutLoop(asyncio.AbstractEventLoop):
    """An event loop for one rollout; see the module's docstring."""

    __slots__ = (
        "_closed",
        "_dropped",
        "_handler",
        "_order",
        "_outside",
        "_prune_at",
        "_ready",
        "_started",
        "branches",
        "cause",
        "closing",
        "generators",
        "latest",
        "made",
        "on_call",
        "prefix",
        "rollout_id",
        "seed",
        "waiting",
    )

    def __init__(self, rollout_id: str, prefix: str, started: datetime) -> None:
        self.rollout_id = self.seed = rollout_id
        self.prefix = prefix
        self.latest = started
        """The latest time of any event so far: clocks differ between machines, but time does not go back."""
        self._started = started
        self.made: list[Call] = []
        """Calls made since `Execution` last took them."""
        self.waiting: dict[str, asyncio.Future[bytes] | Timer] = {}
        """What waits for the reply to each call that has none yet. Cancelled ones stay: their reply comes too."""
        self.cause = ""
        self.branches: list[Branch] = []
        """All that are not done, and some that are."""
        self.on_call: Callable[[Call], None] | None = None
        self.closing = False
        """No calls are made any more, and timers fire at once."""
        self.generators: WeakKeyDictionary[Random, str] | None = None
        """In a fork, the generators that the code has, each with the place at which it was taken."""
        self._ready: list[Handle] = []
        self._outside: Outside | None = None
        self._dropped: Outside | None = None
        # Sets of tasks are iterated by asyncio. The low bits make that the order of creation; the high bits keep the
        # tasks of many rollouts apart in the one set of all tasks that asyncio keeps.
        self._order = zlib.crc32(rollout_id.encode()) << 20
        self._prune_at = 16
        self._closed = False
        self._handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None

    # -- what Execution and Context use

    def run(self) -> None:
        """Works until every branch waits. Raises `AgentSpins` when that takes too long."""
        outer = _get_running_loop()
        steps = 0
        _set_running_loop(self)
        try:
            while batch := self._ready:
                self._ready = []
                steps += len(batch)
                if steps > MAX_STEPS:
                    raise self._spinning(batch)
                for handle in batch:
                    callback = handle.callback
                    if callback is not None:
                        try:
                            handle.context.run(callback, *handle.args)
                        except Departure:
                            raise
                        except BaseException as error:  # noqa: BLE001 - of tasks, SystemExit and KeyboardInterrupt
                            self.call_exception_handler({"message": "a callback failed", "exception": error})
        finally:
            _set_running_loop(outer)
        if len(self.branches) > self._prune_at:  # what failed stays: its error may be looked at later
            self.branches = [branch for branch in self.branches if not branch.done() or branch._log_traceback]  # noqa: SLF001
            self._prune_at = 2 * len(self.branches) + 16

    def call(self, kind: Kind, instance: str, type_: str, data: bytes) -> asyncio.Future[bytes]:
        """Makes a call; the future gets its reply. While the execution is closed it is cancelled instead."""
        future: asyncio.Future[bytes] = asyncio.Future(loop=self)
        if self.closing:
            self.call_soon(future.cancel)
            return future
        key = self._next_key()
        self.waiting[key] = future
        self._make(Call(key=key, kind=kind, instance=instance, type=type_, data=data, cause=self.cause))
        return future

    def draw(self) -> str:
        """A name for one drawing of randomness, unique in the rollout and independent of timing.

        Of a fork it is the parent's, as long as the code is given what they share.
        """
        return f"{self.seed}/{self._place_of_draw()}"

    def generator(self) -> Random:
        """A generator seeded by a drawing. `reseed` seeds it again."""
        place = self._place_of_draw()
        generator = Random(f"{self.seed}/{place}")  # noqa: S311 - repeatable, no secret
        if self.generators is not None:
            self.generators[generator] = place
        return generator

    def reseed(self, seed: str) -> None:
        """A fork leaves what it shares with its parent: so do the generators that the code took before."""
        self.seed = seed
        for generator, place in (self.generators or {}).items():
            generator.seed(f"{seed}/{place}")

    def _place_of_draw(self) -> str:
        branch = self._branch()
        branch.draws += 1
        return f"{self.prefix}{branch.path}_{branch.draws - 1}"

    def fire(self, timer: Timer) -> None:
        """A timer's reply has come."""
        due = self._started + timedelta(seconds=timer.due)
        self.latest = max(self.latest, due)
        self._ready.append(timer)

    def _next_order(self) -> int:
        self._order += 1
        return self._order

    def _branch(self) -> "Branch | Outside":
        task = asyncio.current_task(self)
        if type(task) is Branch:
            return task
        if self._outside is None:
            self._outside = Outside("c")
        return self._outside

    @property
    def next_key(self) -> str:
        """The key that the next call of the branch which runs now will have."""
        branch = self._branch()
        return f"{self.prefix}{branch.path}_{branch.calls}"

    def _next_key(self) -> str:
        branch = self._branch()
        branch.calls += 1
        return f"{self.prefix}{branch.path}_{branch.calls - 1}"

    def _spinning(self, batch: list[Handle]) -> AgentSpins:
        reason = f"{MAX_STEPS} steps without waiting for a call; is there a loop around an `await` that never waits?"
        spinning = dict.fromkeys(getattr(handle.callback, "__self__", None) for handle in batch)
        places = [
            f"  branch {branch.path} is at {':'.join(map(str, location.waiting(branch)))}"
            for branch in spinning
            if isinstance(branch, Branch)
        ]
        return AgentSpins("\n".join([f"rollout {self.rollout_id}: {reason}", *places[:MAX_NAMED]]))

    def _make(self, call: Call) -> None:
        self.made.append(call)
        if self.on_call is not None:
            self.on_call(call)

    def drop_asyncgen(self, agen: AsyncGenerator[Any, Any]) -> None:
        """An async generator that had not ended was dropped: it ends as a branch of its own."""
        if not self._closed:
            if self._dropped is None:
                self._dropped = Outside("g")
            self._start(agen.aclose(), self._dropped)

    def _start(
        self,
        coro: Coroutine[Any, Any, T],
        parent: "Branch | Outside | None",
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> Branch:
        if parent is None:
            path = "m"
        else:
            parent.children += 1
            path = f"{parent.path}{'-' if len(parent.path) > 1 else ''}{parent.children}"
        branch = Branch(coro, self, self._next_order(), path, name=name, context=context)
        self.branches.append(branch)
        return branch

    def start_main(self, coro: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """The main branch."""
        asyncgens.install()
        return self._start(coro, None)

    # -- what asyncio and agent code use

    def time(self) -> float:
        """Seconds since the rollout started, by the times of its events: it stands still between replies."""
        return (self.latest - self._started).total_seconds()

    def create_future(self) -> asyncio.Future[Any]:
        """A future with a deterministic hash."""
        return Promise(self, self._next_order())

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        """A new branch, child of the one that runs."""
        return self._start(coro, self._branch(), name, context)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        """Puts a callback at the end of the ready queue."""
        handle = Handle(callback, args, contextvars.copy_context() if context is None else context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Timer:
        """Sets a timer, which is a call; an infinite delay never fires, one of 0 or less is no call."""
        delay = round(float(delay), 6)
        if math.isnan(delay):
            raise ValueError("a delay of NaN seconds")
        timer = Timer(callback, args, contextvars.copy_context() if context is None else context, self.time() + delay)
        if delay <= 0 or self.closing:
            self._ready.append(timer)
        elif delay != math.inf:
            key = self._next_key()
            self.waiting[key] = timer
            data = _ENCODE({"delay": delay})
            what = "timer.requested"
            self._make(
                Call(key=key, kind="timers", instance=CLOCK, type=what, data=data, delay=delay, cause=self.cause)
            )
        return timer

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Timer:
        """Sets a timer by the loop's time."""
        return self.call_later(when - self.time(), callback, *args, context=context)

    def get_debug(self) -> bool:
        """Always false."""
        return False

    def is_running(self) -> bool:
        """Whether agent code is being run now."""
        return _get_running_loop() is self

    @staticmethod
    def runs_now() -> bool:
        """Whether agent code of any rollout is being run on this thread."""
        return isinstance(_get_running_loop(), RolloutLoop)

    def is_closed(self) -> bool:
        """Whether the execution was closed."""
        return self._closed

    def finish(self) -> None:
        """Lets go of what ran, and reports errors that no code has looked at. `Execution` ends the branches before."""
        for branch in self.branches:
            if branch.done() and branch._log_traceback:  # noqa: SLF001
                branch._log_traceback = False  # noqa: SLF001
                error = branch.exception()
                if branch.path != "m" and isinstance(error, Exception):
                    message = f"branch {branch.path} failed, and nothing awaits it"
                    self.call_exception_handler({"message": message, "exception": error, "task": branch})
        self._closed = True
        self._ready.clear()
        self.branches.clear()
        self.made.clear()

    def get_task_factory(self) -> None:
        """There is none."""
        return

    def get_exception_handler(self) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None:
        """The handler set by agent code."""
        return self._handler

    def set_exception_handler(
        self, handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None
    ) -> None:
        """A handler for errors that nothing awaits."""
        self._handler = handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Logs the error; after the end of the rollout there is nothing left to say."""
        if self._closed:
            return
        _LOGGER.error("rollout %s: %s", self.rollout_id, context.get("message"), exc_info=context.get("exception"))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """An error that nothing awaits."""
        if self._handler is None:
            self.default_exception_handler(context)
            return
        try:
            self._handler(self, context)
        except Departure:
            raise
        except BaseException as error:  # noqa: BLE001 - the agent's own handler
            self.default_exception_handler({"message": "the agent's exception handler failed", "exception": error})


def _refusing(name: str) -> Callable[..., Any]:
    def refuse(*_args: object, **_kwargs: object) -> Any:
        raise NotInAgents(f"the event loop's {name}()")

    return refuse


# Whatever else asyncio's loops can do reaches outside.
_OFFERED = {name for name in vars(RolloutLoop) if not name.startswith("_")}
for _name in vars(asyncio.AbstractEventLoop):
    if not _name.startswith("_") and _name not in _OFFERED and _name != "slow_callback_duration":
        setattr(RolloutLoop, _name, _refusing(_name))
