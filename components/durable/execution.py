"""Runs one rollout's agent code: replies in, calls out.

The agent worker drives it live, `matching.reexecute` drives it from a history; both through `deliver`, so that
recovery is the normal path. It never publishes, waits or reads a clock.

As under `asyncio.run`, branches that still run when the main one has ended are cancelled, in the order of their
creation, and the execution is done when the last of them is. Code that never awaits (`while True: pass`) cannot be
stopped from inside the process and blocks its worker; code that awaits without ever waiting for a call is stopped
with `AgentSpins`.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from types import FrameType
from typing import Any, Final, Generic, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from components.durable import guard, location
from components.durable.branches import Branch
from components.durable.calls import Call, Reply
from components.durable.context import Context
from components.durable.errors import (
    AgentCancelled,
    AgentExited,
    AgentFailed,
    AgentSpins,
    AgentStuck,
    CallFailed,
    UnknownReply,
)
from components.durable.loop import MAX_NAMED, RolloutLoop
from contracts.events import CallError

T = TypeVar("T")

CLOSING_ROUNDS: Final = 3
"""Cancellations that code may catch before `close` gives it up."""

_CALL_ERROR: Final = msgspec.json.Decoder(CallError)


class Execution(Generic[T]):
    """One rollout's agent code, from its start to its end."""

    __slots__ = ("_cancelled", "_failure", "_given", "_latest", "_loop", "_main", "_seeds", "_start", "done")

    def __init__(
        self,
        rollout_id: str,
        main: Callable[[Context], Coroutine[Any, Any, T]],
        *,
        time: datetime,
        prefix: str = "",
        cause: str = "",
        seeds: Sequence[tuple[int, str]] = (),
    ) -> None:
        """Nothing runs before `start`.

        `time` is that of the event that started the rollout and `cause` its ID; `prefix` stands before each call key
        as it is (for a sub-agent: `<caller's key>--`). `seeds` say what randomness is seeded with from the so-manieth
        reply on; else it is the rollout's ID.
        """
        guard.install()
        self._loop = RolloutLoop(rollout_id, prefix, time)  # type: ignore[abstract]  # the loop refuses the rest
        self._loop.cause = cause
        self._given, self._seeds = 0, seeds
        if len(seeds) > 1:
            self._loop.generators = WeakKeyDictionary()
        self._seed()
        self._start = main
        self._main: asyncio.Task[T] | None = None
        self._latest: dict[str, str] = {}
        """By resources instance, the key of the last call to it that is to be published."""
        self._failure: AgentFailed | None = None
        self._cancelled: frozenset[Branch] = frozenset()
        self.done = False
        """Whether the code has ended; `result` says how."""

    @property
    def rollout_id(self) -> str:
        """The rollout that this is an execution of."""
        return self._loop.rollout_id

    @property
    def outstanding(self) -> set[str]:
        """Keys of the calls whose reply the code still waits for. Cancelled ones are not among them."""
        if self.done:
            return set()
        return {key for key, waiter in self._loop.waiting.items() if not waiter.cancelled()}

    def start(self) -> list[Call]:
        """Runs the code until it waits; returns the calls it made, to be published in this order."""
        context = Context(self._loop)
        self._main = self._loop.start_main(self._start(context))
        return self._advance()

    def deliver(self, reply: Reply) -> list[Call]:
        """Gives the code one reply, in the order of the log, and runs it until it waits again.

        Returns the calls it made, to be published in this order. A reply that nothing waits for any longer is
        consumed. Raises `UnknownReply` for a reply to a call that was not made or has been answered.
        """
        loop = self._loop
        waiter = loop.waiting.pop(reply.key, None)
        if waiter is None:
            raise UnknownReply(reply.key)
        self._given += 1
        if self._seeds:
            self._seed()
        loop.latest = max(loop.latest, reply.time)
        loop.cause = reply.id
        if waiter.cancelled() or self.done:
            return []
        if not isinstance(waiter, asyncio.Future):
            loop.fire(waiter)
        elif reply.type.endswith(".failed"):
            waiter.set_exception(CallFailed(_call_error(reply), reply.key))
        else:
            waiter.set_result(reply.data)
        return self._advance()

    def result(self) -> T:
        """What the code returned; raises what it raised, or `AgentFailed` where that is no ordinary exception."""
        if self._failure is not None:
            raise self._failure
        if not self.done or self._main is None:
            raise asyncio.InvalidStateError(f"rollout {self.rollout_id} has not ended")
        if self._main.cancelled():
            raise AgentCancelled(
                f"rollout {self.rollout_id}: the agent ended with a CancelledError; it awaited something that its own "
                f"code had cancelled"
            )
        error = self._main.exception()
        if error is None or isinstance(error, Exception):
            return self._main.result()
        raise AgentExited(f"rollout {self.rollout_id}: the agent raised {error!r}") from error

    def error(self) -> BaseException | None:
        """What the code raised, for a debugger, after `result` was asked; None where it returned or has not ended."""
        main = self._main
        return main.exception() if main is not None and main.done() and not main.cancelled() else None

    def close(self) -> None:
        """Ends the code wherever it is, by cancelling every branch. Calls that it makes as it ends are not made.

        Timers fire at once meanwhile. A branch that refuses to end is let go after `CLOSING_ROUNDS` cancellations.
        """
        loop = self._loop
        if loop.is_closed():
            return
        self.done = True
        if self._failure is None and (self._main is None or not self._main.done()):
            self._failure = AgentCancelled(f"rollout {self.rollout_id} was closed before its agent had ended")
        loop.closing = True
        with contextlib.suppress(AgentSpins):
            for _ in range(CLOSING_ROUNDS):
                for branch in loop.branches:
                    branch.cancel()
                loop.run()
        loop.finish()

    def where_called(self, call_key: str) -> tuple[str, int]:
        """File and line of the call that is being made, for `watch`."""
        found, path = location.calling(), _path(call_key)
        if not location.is_agents(found) and path != "m" and (frames := self._frames(_outer(path), self._waiting())):
            found = location.place(frames)
        return location.definition(self._start) if found == location.UNKNOWN else found

    def where(self, call_key: str = "") -> tuple[str, int]:
        """File and line where a call's branch waits, else the main one.

        If that has ended: where it raised, else where it is defined.
        """
        waiting, path = self._waiting(), _path(call_key)
        if frames := self._frames(path if path in waiting else "m", waiting):
            return location.place(frames)
        error = self.error()
        raised = location.raising(error) if error is not None else location.UNKNOWN
        return location.definition(self._start) if raised == location.UNKNOWN else raised

    def stacks(self) -> list[tuple[str, list[FrameType]]]:
        """Each branch that waits, by its path, with its frames from the outermost in: for a debugger."""
        waiting = self._waiting()
        return [(path, self._frames(path, waiting)) for path in waiting]

    def _waiting(self) -> dict[str, Branch]:
        return {branch.path: branch for branch in self._loop.branches if not branch.done()}

    @staticmethod
    def _frames(path: str, waiting: Mapping[str, Branch]) -> list[FrameType]:
        """The frames of a branch that waits, outermost first.

        One whose own code is not the agent's (`gather` of a handle's method) is where the agent waits for it.
        """
        frames = location.stack(waiting[path]) if path in waiting else []
        if path == "m" or (frames and location.is_agents(location.place(frames))):
            return frames
        return Execution._frames(_outer(path), waiting) or frames

    def watch(self, on_call: Callable[[Call], None] | None) -> None:
        """Has each call shown to `on_call` at the moment at which agent code makes it. For `matching`."""
        self._loop.on_call = on_call

    def _seed(self) -> None:
        begun = [seed for replies, seed in self._seeds if replies <= self._given]
        if begun and begun[-1] != self._loop.seed:
            self._loop.reseed(begun[-1])

    def _advance(self) -> list[Call]:
        loop = self._loop
        assert self._main is not None
        try:
            loop.run()
            if self._main.done():
                self._finish()
        except AgentSpins as error:
            self._fail(error)
            return []
        if self.done:
            loop.finish()
            return []
        waiting = loop.waiting
        for waiter in waiting.values():
            if not waiter.cancelled():
                made, loop.made = loop.made, []
                return [self._in_line(call) for call in made if not waiting[call.key].cancelled()]
        self._fail(AgentStuck(self._stuck()))
        return []

    def _in_line(self, call: Call) -> Call:
        """The call, with the one that it comes after: a session gets them in the order in which they were made."""
        if call.kind != "resources":
            return call
        after = self._latest.get(call.instance, "")
        self._latest[call.instance] = call.key
        return msgspec.structs.replace(call, after=after)

    def _finish(self) -> None:
        """The main branch has ended: the others are cancelled once each, and may make calls to clean up."""
        loop = self._loop
        while rest := [branch for branch in loop.branches if not branch.done() and branch not in self._cancelled]:
            for branch in rest:
                branch.cancel()
            self._cancelled = self._cancelled.union(rest)
            loop.run()
        self.done = all(branch.done() for branch in loop.branches)

    def _fail(self, failure: AgentFailed) -> None:
        self._failure = failure
        self.close()

    def _stuck(self) -> str:
        reason = "the agent waits, but for no call: look for a queue, lock, event or future that no branch will set"
        lines = [f"rollout {self.rollout_id}: {reason}"]
        for branch in self._loop.branches:
            if not branch.done():
                file, line = location.waiting(branch)
                lines.append(f"  branch {branch.path} waits at {file}:{line}")
        return "\n".join(lines[: 1 + MAX_NAMED])


def _path(call_key: str) -> str:
    """The branch that made a call."""
    return call_key.rpartition("--")[2].partition("_")[0]


def _outer(path: str) -> str:
    """The branch that began one other than `m`."""
    return path.rpartition("-")[0] or "m"


def _call_error(reply: Reply) -> CallError:
    try:
        return _CALL_ERROR.decode(reply.data)
    except msgspec.DecodeError as error:
        return CallError(kind="internal", message=f"the {reply.type} of call {reply.key} is no CallError: {error}")
