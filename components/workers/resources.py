"""Serves resources calls: seed, tools, verify, on the sessions that this worker keeps.

A session that is not here (another worker had it, or this one let it go) is rebuilt from the log. A call that was
delivered before, or is given back, is applied to a rebuilt session too, since it may have changed the one in memory.
"""

import asyncio
from functools import partial

import msgspec

from bus import Bus, Delivery
from components.resources.base import Resources, ResourcesConfig
from components.resources.errors import ResourcesError
from components.resources.runtime import History, Runtime
from components.workers.callee import Callee, CallRefused
from components.workers.contexts import response_of
from components.workers.rollout import prefix_of
from components.workers.spec import WorkerSpec
from contracts.events import CallError, Event
from contracts.rollouts import SessionSeed, ToolCall, VerifyRequest

_SEED = msgspec.json.Decoder(SessionSeed)
_TOOL_CALL = msgspec.json.Decoder(ToolCall)
_VERIFY = msgspec.json.Decoder(VerifyRequest)


class ResourcesWorker:
    """One worker of a resources pool."""

    def __init__(self, bus: Bus, resources: Resources[ResourcesConfig], spec: WorkerSpec) -> None:
        self._bus, self._spec = bus, spec
        self._runtime = Runtime(resources)
        self._unwritten: dict[str, set[asyncio.Task[None]]] = {}
        """By session, the calls that have been applied to it and whose replies are on their way to the log."""
        self._callee = Callee(
            bus,
            self._answer,
            concurrency=resources.config.pool.concurrency,
            on_broken_off=lambda request: self._runtime.drop(_session(request)),
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

    async def _answer(self, delivery: Delivery, data: bytes) -> bytes:
        request = delivery.event
        session = _session(request)
        if delivery.num_delivered > 1:
            self._runtime.drop(session)
        recover = partial(self._history, request, session)
        try:
            if request.type == "session.requested":
                await self._runtime.seed(session, _SEED.decode(data).task)
                reply = b"null"
            elif request.type == "tool.requested":
                output = await self._runtime.call(session, _TOOL_CALL.decode(data), recover=recover)
                reply = msgspec.json.encode(output)
            else:
                verdict = await self._runtime.verify(session, await self._asked(request, data), recover=recover)
                self._runtime.drop(session)
                reply = msgspec.json.encode(verdict)
        except ResourcesError as error:
            raise CallRefused(error.call_error()) from error
        except msgspec.DecodeError as error:
            raise CallRefused(CallError(kind="bad_request", message=f"{request.type}: {error}")) from error
        self._applied(session)
        return reply

    async def _asked(self, request: Event, data: bytes) -> VerifyRequest:
        asked = _VERIFY.decode(data)
        response = await response_of(self._bus, request.rolloutid, asked)
        return VerifyRequest(task=asked.task, response=response)

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
        replied = {entry.subject for entry in recorded if entry.event.type.endswith(".replied")}
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
        calls = [event for event in before[seeded:] if event.type == "tool.requested"]
        return History(task, [_TOOL_CALL.decode(await self._bus.fetch_data(event)) for event in calls])


def _addressee(event: Event) -> list[str]:
    """Kind and instance that a request is addressed to."""
    return event.subject.split(".")[2:4]


def _session(request: Event) -> str:
    """A session belongs to a rollout, or to the nested rollout whose agent calls."""
    return f"{request.rolloutid}/{prefix_of(request.callkey)}"
