"""Serves the calls of one pool: take a request, answer it, put the reply in the log, acknowledge.

The frame of model and resources workers. A request is acknowledged only after its reply is in the log; a redelivered
one is first looked up there. What fails is answered with a typed error; what cannot be answered at all ends in a dead
letter. It never decides what a request means: the `answer` it is given does.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection

import msgspec
import structlog

from bus import Bus, Conflict, DeadLetter, Delivery, Pool
from components.workers.spec import WorkerSpec
from contracts.events import CallError, Event

Answer = Callable[[Delivery, bytes], Awaitable[bytes]]
"""Turns a request and its data into the reply's data; raises `CallRefused` with the typed error."""


class CallRefused(Exception):
    """The call is answered with this error."""

    def __init__(self, error: CallError) -> None:
        self.error = error
        super().__init__(error.message)


class Callee:
    """One worker's share of a pool."""

    def __init__(self, bus: Bus, answer: Answer, *, concurrency: int) -> None:
        self._bus, self._answer = bus, answer
        self._pool: Pool | None = None
        self.room = asyncio.Semaphore(concurrency)
        """A place for each call in progress; a model gives its own back while it waits to try again."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._log = structlog.get_logger()

    async def join(self, spec: WorkerSpec, types: Collection[str]) -> None:
        """Joins the pool of the spec's instance, for requests of these types."""
        self._pool = await self._bus.pool(spec.kind, spec.instance, spec.slots, types=types, on_dead=self._on_dead)

    @property
    def in_progress(self) -> int:
        """Requests taken and not yet acknowledged."""
        return len(self._tasks)

    async def serve(self) -> None:
        """Takes requests until the pool is stopped, then finishes those in progress."""
        assert self._pool is not None
        async for delivery in self._pool:
            await self.room.acquire()
            task = asyncio.create_task(self._handle(delivery))
            self._tasks.add(task)
            task.add_done_callback(self._finished)
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def drain(self, seconds: float) -> None:
        """Stops taking, waits for what is in progress, and gives back what is not done in time."""
        if self._pool is not None:
            await self._pool.stop()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in list(self._tasks):
            task.cancel()

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.room.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("call.unacknowledged", exc_info=error)

    async def _handle(self, delivery: Delivery) -> None:
        request = delivery.event
        if delivery.num_delivered > 1 and await self._bus.last(request.replyto) is not None:
            self._log.info("call.already_answered", rollout=request.rolloutid, call=request.callkey)
            delivery.ack()
            return
        try:
            await self._reply(delivery, request)
        except asyncio.CancelledError:
            delivery.nak(1.0)
            raise

    async def _reply(self, delivery: Delivery, request: Event) -> None:
        started = time.perf_counter()
        outcome, data = await self._answered(delivery)
        await self._publish(request, outcome, data, time.perf_counter() - started)
        delivery.ack()

    async def _publish(self, request: Event, outcome: str, data: bytes, elapsed: float = 0.0) -> None:
        reply = self._bus.event(
            type=f"{request.type.partition('.')[0]}.{outcome}",
            subject=request.replyto,
            data=data,
            rolloutid=request.rolloutid,
            callkey=request.callkey,
            causationid=request.id,
            traceparent=request.traceparent,
            elapsed=round(elapsed, 6),
        )
        try:
            await self._bus.publish(reply)
        except Conflict as conflict:
            self._log.info("call.answered_elsewhere", rollout=request.rolloutid, by=conflict.stored.event.source)

    async def _on_dead(self, letter: DeadLetter) -> None:
        """The call of a request that cannot be processed fails, so that nothing waits for it."""
        if letter.event is not None and letter.reason != "subject_mismatch":
            error = CallError(kind="poison", message=letter.message, details={"reason": letter.reason})
            await self._publish(letter.event, "failed", msgspec.json.encode(error))

    async def _answered(self, delivery: Delivery) -> tuple[str, bytes]:
        request = delivery.event
        try:
            return "replied", await self._answer(delivery, await self._bus.fetch_data(delivery.event))
        except CallRefused as refused:
            error = refused.error
        except Exception as exception:  # noqa: BLE001 - a fault of ours or of the component answers its own call only
            self._log.exception("call.raised", rollout=request.rolloutid, call=request.callkey)
            error = CallError(
                kind="internal",
                message=f"{request.type} raised {type(exception).__name__}: {exception}",
                details={"exception": type(exception).__name__},
            )
        self._log.warning(
            "call.answered_with_error", rollout=request.rolloutid, call=request.callkey, error=error.kind, message=error.message
        )
        return "failed", msgspec.json.encode(error)
