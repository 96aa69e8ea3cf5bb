"""Serves resources calls: seed, tools, verify, on the sessions that this worker keeps.

A session that is not here (another worker had it, or this one let it go), or is another than the call before this one
left, is made again from the log (`session_log`): from the recorded calls, or from the snapshot in the last reply.

Calls of a session are applied in the order in which they were asked, which need not be that in which they come: after
the death of a worker, what it held comes later. Each names the one before it, so that a look at the session in memory
tells whether it is its turn. Where it is not, it waits without a place until those before it are answered.

Where snapshots are taken, a call of a session waits until the reply of the one before is in the log. So the replies are
stored in the order in which the calls were applied, and the last one has all calls in its snapshot that are answered.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

import msgspec
import structlog

from bus import Bus, Delivery
from components.resources.base import Resources, ResourcesConfig
from components.resources.errors import ResourcesError, SnapshotFailed
from components.resources.runtime import History, Place, Runtime
from components.workers.callee import Callee, CallRefused, Reply
from components.workers.contexts import response_of
from components.workers.session_log import Early, SessionLog, session_of
from components.workers.spec import WorkerSpec
from contracts.events import CallError, Event
from contracts.rollouts import SessionSeed, SessionSnapshot, ToolCall, VerifyRequest

T = TypeVar("T")

FIRST_LOOK_S: Final = 0.05
LOOK_S: Final = 1.0
"""Seconds after which a call that waits for one before it looks into the log again: at first, and at most."""

_SEED = msgspec.json.Decoder(SessionSeed)
_TOOL_CALL = msgspec.json.Decoder(ToolCall)
_VERIFY = msgspec.json.Decoder(VerifyRequest)


class ResourcesWorker:
    """One worker of a resources pool."""

    def __init__(self, bus: Bus, resources: Resources[ResourcesConfig], spec: WorkerSpec) -> None:
        self._bus, self._spec = bus, spec
        self._runtime = Runtime(resources)
        self._sessions = SessionLog(bus, self._runtime)
        self._here: dict[tuple[str, str], asyncio.Task[Any]] = {}
        """By session and key, the calls on it that this worker has in its hands."""
        self._unwritten: dict[str, set[asyncio.Task[None]]] = {}
        """By session, the calls that have been applied to it, or refused, and whose replies are on their way."""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By session with snapshots, whose turn it is: from before a call is applied until its reply is in the log."""
        self._callee = Callee(
            bus,
            self._answer,
            concurrency=resources.config.pool.concurrency,
            until_due=self._until_due,
            on_broken_off=lambda request: self._runtime.drop(session_of(request)),
            on_other_reply=self._on_other_reply,
        )
        self._log = structlog.get_logger()

    @property
    def in_progress(self) -> int:
        """Calls taken and not yet acknowledged."""
        return self._callee.in_progress

    async def start(self) -> None:
        """Joins the pool."""
        await self._callee.join(self._spec, ("session.requested", "tool.requested", "verify.requested"))

    async def serve(self) -> None:
        """Answers calls until `drain`."""
        await self._callee.serve()

    async def drain(self, seconds: float) -> None:
        """Finishes the calls in progress within `seconds` and gives the others back."""
        await self._callee.drain(seconds)

    async def _answer(self, delivery: Delivery, data: bytes) -> Reply:
        request, session = delivery.event, session_of(delivery.event)
        try:
            call = _TOOL_CALL.decode(data) if request.type == "tool.requested" else None
            attempt = partial(self._apply, delivery, session, data, call)
            if not self._sessions.ordered(request, call):
                return Reply(await attempt())
            self._came(session, request.callkey)
            if self._runtime.takes_snapshots:
                attempt = partial(self._in_turn, session, attempt)
            try:
                return Reply(await self._patiently(session, attempt))
            finally:
                self._settled(session)
        except ResourcesError as error:
            raise CallRefused(error.call_error()) from error
        except msgspec.DecodeError as error:
            raise CallRefused(CallError(kind="bad_request", message=f"{request.type}: {error}")) from error

    async def _apply(self, delivery: Delivery, session: str, data: bytes, call: ToolCall | None) -> bytes:
        request = delivery.event
        place, recover = Place(request.callkey, request.afterkey), partial(self._history, request, session)
        if request.afterkey is None and delivery.num_delivered > 1:
            self._runtime.drop(session)
        if call is not None:
            output = await self._runtime.call(session, call, recover=recover, place=place)
            return self._checked(session, output.snapshot, msgspec.json.encode(output))
        if request.type == "session.requested":
            if request.afterkey:
                await self._sessions.check(request)
            snapshot = await self._runtime.seed(session, _SEED.decode(data).task, place=place)
            return self._checked(session, snapshot, msgspec.json.encode(snapshot))
        asked = await self._asked(request, data)
        verdict = await self._runtime.verify(session, asked, recover=recover, place=place)
        self._runtime.drop(session)
        return msgspec.json.encode(verdict)

    async def _asked(self, request: Event, data: bytes) -> VerifyRequest:
        asked = _VERIFY.decode(data)
        response = await response_of(self._bus, request.rolloutid, asked)
        return VerifyRequest(task=asked.task, response=response)

    def _on_other_reply(self, request: Event) -> None:
        """What the log has may differ from what was done here; calls that are made again leave the same session."""
        if self._runtime.takes_snapshots:
            self._runtime.drop(session_of(request))

    def _checked(self, session: str, snapshot: SessionSnapshot | None, reply: bytes) -> bytes:
        limit = self._bus.config.blob_limit
        if snapshot is not None and len(reply) > limit:
            self._runtime.drop(session)  # the call is answered with an error, so the session must not have it
            size = len(bytes(snapshot.state))
            raise SnapshotFailed(f"a reply with a snapshot of {size:,} bytes is over log.blob_limit, {limit:,} bytes")
        return reply

    # --- order -------------------------------------------------------------------------------------------------

    async def _until_due(self, request: Event) -> None:
        """Waits until nothing that was asked before is to be applied before this call."""
        if request.afterkey and await self._sessions.takes_session(request):
            with suppress(CallRefused):  # it is refused when it is applied
                await self._patiently(session_of(request), partial(self._sessions.check, request))

    async def _patiently(self, session: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """What the attempt returns when it is not early any more. Meanwhile the call has no place."""
        look_s = FIRST_LOOK_S
        while True:
            try:
                return await attempt()
            except Early as early:
                self._log.debug("call.waits", session=session, before=early.key)
                here = self._here.get((session, early.key))
                await self._callee.wait(None if here else look_s, [here] if here else [])
                look_s = min(LOOK_S, 2 * look_s)

    async def _in_turn(self, session: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Waits for the session's turn, which this task then has until it ends; one that is early gives it back."""
        task = _this_task()
        turn = self._turns.get(session)
        if turn is None:
            turn = self._turns[session] = asyncio.Lock()
        await turn.acquire()

        def release(_task: object) -> None:
            turn.release()

        task.add_done_callback(release)
        try:
            return await attempt()
        except Early:
            task.remove_done_callback(release)
            turn.release()
            raise

    def _came(self, session: str, key: str) -> None:
        """This task has the call in its hands."""
        task, place = _this_task(), (session, key)
        self._here[place] = task

        def gone(_task: object) -> None:
            if self._here.get(place) is task:
                del self._here[place]

        task.add_done_callback(gone)

    def _settled(self, session: str) -> None:
        """The session has this task's call in it, or never will, and the log does not say so yet."""
        task = _this_task()
        self._unwritten.setdefault(session, set()).add(task)
        task.add_done_callback(partial(self._written, session))

    def _written(self, session: str, task: asyncio.Task[None]) -> None:
        tasks = self._unwritten[session]
        tasks.remove(task)
        if not tasks:
            del self._unwritten[session]

    async def _history(self, request: Event, session: str) -> History:
        if session in self._unwritten:
            await asyncio.wait(self._unwritten[session])
        if request.afterkey and (session, request.afterkey) in self._here:
            raise Early(request.afterkey)
        return await self._sessions.history(request)


def _this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task
