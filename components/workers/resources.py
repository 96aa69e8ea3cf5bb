"""Serves resources calls: seed, tools, verify, on the sessions that this worker keeps.

A session that is not here (another worker had it, or this one let it go) is made again from the log: from the recorded
calls, or from the snapshot in the last reply. A call that was delivered before, or is given back, is applied to a
session that was made again too, since it may have changed the one in memory.

Where snapshots are taken, a call of a session waits until the reply of the one before is in the log. So the replies are
stored in the order in which the calls were applied, and the last one has all calls in its snapshot that are answered.
"""

import asyncio
from functools import partial
from weakref import WeakValueDictionary

import msgspec

from bus import Bus, Delivery
from components.durable.history import SUB_CALL
from components.resources.base import Resources, ResourcesConfig
from components.resources.errors import ResourcesError, SnapshotFailed
from components.resources.runtime import History, Runtime
from components.workers.callee import Callee, CallRefused, Reply
from components.workers.contexts import response_of
from components.workers.rollout import prefix_of
from components.workers.spec import WorkerSpec
from contracts.events import CallError, Event, Recorded
from contracts.rollouts import SessionSeed, SessionSnapshot, ToolCall, ToolOutput, VerifyRequest

_SEED = msgspec.json.Decoder(SessionSeed)
_TOOL_CALL = msgspec.json.Decoder(ToolCall)
_VERIFY = msgspec.json.Decoder(VerifyRequest)
_SEEDED = msgspec.json.Decoder(SessionSnapshot | None)
_TOOL_OUTPUT = msgspec.json.Decoder(ToolOutput)


class ResourcesWorker:
    """One worker of a resources pool."""

    def __init__(self, bus: Bus, resources: Resources[ResourcesConfig], spec: WorkerSpec) -> None:
        self._bus, self._spec = bus, spec
        self._runtime = Runtime(resources)
        self._unwritten: dict[str, set[asyncio.Task[None]]] = {}
        """By session, the calls that have been applied to it and whose replies are on their way to the log."""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By session with snapshots, whose turn it is: from before a call is applied until its reply is in the log."""
        self._callee = Callee(
            bus,
            self._answer,
            concurrency=resources.config.pool.concurrency,
            on_broken_off=lambda request: self._runtime.drop(_session(request)),
            on_other_reply=self._on_other_reply,
        )

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
        request = delivery.event
        session = _session(request)
        recover = partial(self._history, request, session)
        try:
            call = _TOOL_CALL.decode(data) if request.type == "tool.requested" else None
            if self._runtime.takes_snapshots and (call is None or self._runtime.takes_session(call)):
                await self._take_turn(session)
            if delivery.num_delivered > 1:
                self._runtime.drop(session)
            if call is not None:
                output = await self._runtime.call(session, call, recover=recover)
                reply = self._checked(session, output.snapshot, msgspec.json.encode(output))
            elif request.type == "session.requested":
                snapshot = await self._runtime.seed(session, _SEED.decode(data).task)
                reply = self._checked(session, snapshot, msgspec.json.encode(snapshot))
            else:
                verdict = await self._runtime.verify(session, await self._asked(request, data), recover=recover)
                self._runtime.drop(session)
                reply = msgspec.json.encode(verdict)
        except ResourcesError as error:
            raise CallRefused(error.call_error()) from error
        except msgspec.DecodeError as error:
            raise CallRefused(CallError(kind="bad_request", message=f"{request.type}: {error}")) from error
        self._applied(session)
        return Reply(reply)

    async def _asked(self, request: Event, data: bytes) -> VerifyRequest:
        asked = _VERIFY.decode(data)
        response = await response_of(self._bus, request.rolloutid, asked)
        return VerifyRequest(task=asked.task, response=response)

    def _on_other_reply(self, request: Event) -> None:
        """What the log has may differ from what was done here; calls that are made again leave the same session."""
        if self._runtime.takes_snapshots:
            self._runtime.drop(_session(request))

    def _checked(self, session: str, snapshot: SessionSnapshot | None, reply: bytes) -> bytes:
        limit = self._bus.config.blob_limit
        if snapshot is not None and len(reply) > limit:
            self._runtime.drop(session)  # the call is answered with an error, so the session must not have it
            size = len(bytes(snapshot.state))
            raise SnapshotFailed(f"a reply with a snapshot of {size:,} bytes is over log.blob_limit, {limit:,} bytes")
        return reply

    async def _take_turn(self, session: str) -> None:
        """Waits for the session's turn, which this task has until it ends."""
        task = asyncio.current_task()
        assert task is not None
        turn = self._turns.get(session)
        if turn is None:
            turn = self._turns[session] = asyncio.Lock()
        await turn.acquire()
        task.add_done_callback(lambda _task: turn.release())

    def _applied(self, session: str) -> None:
        """The session has this task's call in it, and the log does not yet."""
        task = asyncio.current_task()
        assert task is not None
        self._unwritten.setdefault(session, set()).add(task)
        task.add_done_callback(partial(self._written, session))

    def _written(self, session: str, task: asyncio.Task[None]) -> None:
        tasks = self._unwritten[session]
        tasks.remove(task)
        if not tasks:
            del self._unwritten[session]

    async def _history(self, request: Event, session: str) -> History:
        """The seed and the answered tool calls since, in the order in which they were asked."""
        if session in self._unwritten:
            await asyncio.wait(self._unwritten[session])
        recorded = await self._bus.history(request.rolloutid)
        replied = {entry.subject: entry for entry in recorded if entry.event.type.endswith(".replied")}
        before = [
            entry.event
            for entry in recorded
            if _addressee(entry.event) == _addressee(request)
            and entry.event.replyto in replied
            and entry.event.subject != request.subject
            and _session(entry.event) == session
        ]
        seeded = max((place for place, event in enumerate(before) if event.type == "session.requested"), default=None)
        if seeded is None:
            message = f"{request.type} before its session was seeded: the agent must call seed_session first"
            raise CallRefused(CallError(kind="bad_request", message=message))
        task = _SEED.decode(await self._bus.fetch_data(before[seeded])).task
        asked = [event for event in before[seeded:] if event.type == "tool.requested"]
        calls = [_TOOL_CALL.decode(await self._bus.fetch_data(event)) for event in asked]
        if not self._runtime.takes_snapshots:
            return History(task, calls)
        on_it = [event for event, call in zip(asked, calls, strict=True) if self._runtime.takes_session(call)]
        replies = [replied[event.replyto] for event in (before[seeded], *on_it)]
        return History(task, calls, await self._last_snapshot(replies))

    async def _last_snapshot(self, replies: list[Recorded]) -> SessionSnapshot | None:
        last = max(replies, key=lambda entry: entry.seq).event
        data = await self._bus.fetch_data(last)
        return _SEEDED.decode(data) if last.type == "session.replied" else _TOOL_OUTPUT.decode(data).snapshot


def _addressee(event: Event) -> list[str]:
    """Kind and instance that a request is addressed to."""
    return event.subject.split(".")[2:4]


def _session(request: Event) -> str:
    """A session belongs to a rollout, or to the nested rollout whose agent calls."""
    nested = prefix_of(request.callkey).removesuffix(SUB_CALL)
    return f"{request.rolloutid}/{nested}" if nested else request.rolloutid
