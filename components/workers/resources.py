"""Serves resources calls: seed, tools, verify, on the sessions that this worker keeps.

A session that is not here (another worker had it, or this one let it go) is rebuilt from the log. A redelivered call is
applied to a rebuilt session too, since its first delivery may have changed the one in memory.
"""

from functools import partial

import msgspec

from bus import Bus, Delivery
from components.resources.base import Resources, ResourcesConfig
from components.resources.errors import ResourcesError
from components.resources.runtime import History, Runtime
from components.workers.callee import Callee, CallRefused
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
        self._callee = Callee(bus, self._answer, concurrency=resources.config.pool.concurrency)

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
                return b"null"
            if request.type == "tool.requested":
                return msgspec.json.encode(await self._runtime.call(session, _TOOL_CALL.decode(data), recover=recover))
            if request.type == "verify.requested":
                verdict = await self._runtime.verify(session, _VERIFY.decode(data), recover=recover)
                self._runtime.drop(session)
                return msgspec.json.encode(verdict)
        except ResourcesError as error:
            raise CallRefused(error.call_error()) from error
        except msgspec.DecodeError as error:
            raise CallRefused(CallError(kind="bad_request", message=f"{request.type}: {error}")) from error
        raise CallRefused(CallError(kind="bad_request", message=f"resources do not answer {request.type!r}"))

    async def _history(self, request: Event, session: str) -> History:
        """The seed and the answered tool calls of a session, in the order in which they were asked."""
        recorded = await self._bus.history(request.rolloutid)
        stored = {entry.subject for entry in recorded}
        before = [
            entry.event
            for entry in recorded
            if _addressee(entry.event) == _addressee(request)
            and entry.event.replyto in stored
            and entry.event.subject != request.subject
            and _session(entry.event) == session
        ]
        seeds = [event for event in before if event.type == "session.requested"]
        if not seeds:
            message = f"{request.type} before its session was seeded: the agent must call seed_session first"
            raise CallRefused(CallError(kind="bad_request", message=message))
        task = _SEED.decode(await self._bus.fetch_data(seeds[-1])).task
        calls = [event for event in before if event.type == "tool.requested"]
        return History(task, [_TOOL_CALL.decode(await self._bus.fetch_data(event)) for event in calls])


def _addressee(event: Event) -> list[str]:
    """Kind and instance that a request is addressed to."""
    return event.subject.split(".")[2:4]


def _session(request: Event) -> str:
    """A session belongs to a rollout, or to the nested rollout whose agent calls."""
    prefix = request.callkey.rpartition("--")[0]
    return f"{request.rolloutid}/{prefix}" if prefix else request.rolloutid
