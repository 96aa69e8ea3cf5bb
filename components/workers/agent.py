"""Serves rollouts: each is an agent's coroutine on its private loop, fed with replies in log order.

Takes rollout requests from the agents pool, publishes the calls that the agent makes, hears their replies over one
ordered consumer, and writes the terminal event. A redelivered rollout is adopted (`adoption`): its history is
re-executed and it goes on from its last event. Agent code runs nowhere but on the private loop.
"""

import asyncio
import time
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from itertools import takewhile

import msgspec
import structlog

from bus import Bus, Conflict, DeadLetter, Delivery, Pool, Replies
from components.agents.base import Agent, AgentConfig, RolloutInfo
from components.durable import Call, Context, Execution, NondeterminismError, Reply, UnknownReply
from components.workers import adoption
from components.workers.ending import ending, failure
from components.workers.rollout import Rollout
from components.workers.spec import WorkerSpec
from contracts.events import CallError, Event, Recorded
from contracts.rollouts import RolloutRequest, RolloutResult
from contracts.tasks import Task

_REQUEST = msgspec.json.Decoder(RolloutRequest)
SWEEP_S = 1.0
"""Seconds between two looks for rollouts past their deadline."""


class AgentWorker:
    """One worker of an agents pool."""

    def __init__(
        self, bus: Bus, worker: str, agent: type[Agent[AgentConfig]], config: AgentConfig, spec: WorkerSpec
    ) -> None:
        self.bus, self.worker = bus, worker
        self.replies: Replies | None = None
        self._pool: Pool | None = None
        self._agent, self._config, self._spec = agent, config, spec
        self._room = asyncio.Semaphore(config.pool.concurrency)
        self._rollouts: dict[tuple[str, str], Rollout] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._log = structlog.get_logger()

    @property
    def in_progress(self) -> int:
        """Rollouts that this worker holds."""
        return len(self._rollouts)

    async def start(self) -> None:
        """Listens for replies, and only then joins the pool."""
        self.replies = await self.bus.replies(self.worker, self._on_reply)
        self._pool = await self.bus.pool(
            self._spec.kind,
            self._spec.instance,
            self._spec.slots,
            types=("rollout.requested", "agent.requested"),
            on_dead=self._on_dead,
        )

    async def serve(self) -> None:
        """Takes rollouts until the pool is stopped."""
        assert self._pool is not None
        sweeper = asyncio.create_task(self._sweep())
        try:
            async for delivery in self._pool:
                await self._room.acquire()
                self._spawn(self._begin(delivery))
        finally:
            sweeper.cancel()

    async def drain(self, seconds: float) -> None:
        """Waits for the rollouts in progress, and gives back those that are not done in time: they are adopted."""
        if self._pool is not None:
            await self._pool.stop()
        if self._rollouts:
            self._idle.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), seconds)
        for rollout in list(self._rollouts.values()):
            self.forget(rollout)
            rollout.delivery.nak(1.0)

    # --- begin -------------------------------------------------------------------------------------------------

    async def _begin(self, delivery: Delivery) -> None:
        event = delivery.event
        try:
            request = _REQUEST.decode(await self.bus.fetch_data(event))
        except msgspec.DecodeError as error:
            self._room.release()
            await self._bury(delivery, f"not a rollout request: {error}")
            return
        rollout = Rollout(delivery, request, datetime.now(UTC))
        self._rollouts[rollout.key] = rollout
        if delivery.num_delivered > 1:
            await self.adopt(rollout)
        else:
            rollout.execution = self.execution_of(rollout)
            self.advance(rollout, rollout.execution.start())

    async def _bury(self, delivery: Delivery, message: str) -> None:
        letter = DeadLetter(
            reason="undecodable",
            message=message,
            subject=delivery.subject,
            seq=delivery.seq,
            num_delivered=delivery.num_delivered,
            raw=delivery.raw,
            event=delivery.event,
        )
        await self.bus.dead_letter(letter, self._spec.kind, self._spec.instance)
        await self._on_dead(letter)
        delivery.ack()

    async def _on_dead(self, letter: DeadLetter) -> None:
        """The rollout of a request that cannot be processed fails, so that nothing waits for it."""
        if letter.event is not None and letter.reason != "subject_mismatch":
            error = CallError(kind="poison", message=letter.message, details={"reason": letter.reason})
            await self._end(letter.event, *failure(letter.event, error, None))

    def execution_of(self, rollout: Rollout) -> Execution[RolloutResult]:
        """A fresh execution of the agent's code for this rollout."""
        request = rollout.request
        info = RolloutInfo(
            rollout_id=rollout.id,
            run_id=request.run_id,
            task_index=request.task_index,
            rollout_index=request.rollout_index,
            attempt=request.attempt,
            sessionless=request.sessionless,
        )

        async def main(context: Context) -> RolloutResult:
            return await self._agent(self._config, context, info).run(Task(request.task))

        event = rollout.event
        return Execution(rollout.id, main, time=event.time, prefix=rollout.prefix, cause=event.id)

    async def adopt(self, rollout: Rollout) -> None:
        """Carries a rollout on from its last event in the log."""
        try:
            calls = await adoption.adopt(self, rollout)
        except adoption.Lost as lost:
            self._log.info("rollout.lost", rollout=rollout.id, reason=str(lost))
            self.forget(rollout)
            if lost.finished:
                rollout.delivery.ack()
            return
        except NondeterminismError as error:
            self._log.error("rollout.nondeterministic", rollout=rollout.id, message=str(error))
            await self._fail(rollout, CallError(kind="nondeterminism", message=str(error)))
            return
        self.advance(rollout, calls)

    # --- go on -------------------------------------------------------------------------------------------------

    def advance(self, rollout: Rollout, calls: list[Call]) -> None:
        """Publishes the calls that the agent made; ends the rollout when it is done and all of them are stored."""
        for call in calls:
            rollout.sending += 1
            self._spawn(self._send(rollout, call))
        self._finish_if_done(rollout)

    async def _send(self, rollout: Rollout, call: Call) -> None:
        subjects = self.bus.subjects
        slots = self._spec.slots_of.get(call.instance, 1)
        event = self.bus.event(
            type=call.type,
            subject=subjects.request(call.kind, call.instance, slots, rollout.id, call.key),
            data=call.data,
            rolloutid=rollout.id,
            callkey=call.key,
            replyto=subjects.reply(self.worker, rollout.id, call.key),
            causationid=call.cause,
            traceparent=rollout.event.traceparent,
        )
        try:
            await self.bus.publish(event)
        except Conflict as conflict:
            rollout.sending -= 1
            if not rollout.ended:
                self._log.warning("call.written_by_another", rollout=rollout.id, by=conflict.stored.event.source)
                await self.adopt(rollout)
            return
        rollout.sending -= 1
        if call.kind == "timers":
            self.arm(event, call.delay)
        self._finish_if_done(rollout)

    def arm(self, request: Event, delay: float) -> None:
        """Fires a timer: after `delay` seconds its reply goes into the log, like any other."""

        def fire() -> None:
            if (request.rolloutid, _prefix(request.callkey)) in self._rollouts:
                self._spawn(self._fire(request))

        asyncio.get_running_loop().call_later(max(0.0, delay), fire)

    async def _fire(self, request: Event) -> None:
        reply = self.bus.event(
            type="timer.replied",
            subject=request.replyto,
            data=b"null",
            rolloutid=request.rolloutid,
            callkey=request.callkey,
            causationid=request.id,
            traceparent=request.traceparent,
        )
        try:
            await self.bus.publish(reply)
        except Conflict:
            self._log.info("timer.fired_already", rollout=request.rolloutid, call=request.callkey)

    def _on_reply(self, recorded: Recorded) -> None:
        event = recorded.event
        rollout = self._rollouts.get((event.rolloutid, _prefix(event.callkey)))
        if rollout is None or rollout.ended or rollout.execution is None:
            return
        if rollout.foreign:
            self._spawn(self._catch_up(rollout))
        elif rollout.pending is not None:
            rollout.pending.append(recorded)
        elif event.dataref:
            rollout.pending = deque([recorded])
            self._spawn(self._drain_pending(rollout))
        else:
            self.deliver(rollout, recorded, bytes(event.data))

    def deliver(self, rollout: Rollout, recorded: Recorded, data: bytes) -> None:
        """Gives one reply to the agent and publishes what it does next."""
        event = recorded.event
        execution = rollout.execution
        if execution is None or recorded.seq <= rollout.seq:
            return
        rollout.seq = recorded.seq
        rollout.tally.add(event, data)
        reply = Reply(key=event.callkey, type=event.type, data=data, time=event.time, id=event.id, seq=recorded.seq)
        try:
            calls = execution.deliver(reply)
        except UnknownReply:
            self._log.warning("reply.unknown", rollout=rollout.id, call=event.callkey)
            return
        self.advance(rollout, calls)

    async def _drain_pending(self, rollout: Rollout) -> None:
        while rollout.pending:
            recorded = rollout.pending[0]
            data = await self.bus.fetch_data(recorded.event)
            if not rollout.ended:
                self.deliver(rollout, recorded, data)
            rollout.pending.popleft()
        rollout.pending = None

    async def _catch_up(self, rollout: Rollout) -> None:
        for recorded, data in await adoption.unheard(self, rollout):
            self.deliver(rollout, recorded, data)

    # --- end ---------------------------------------------------------------------------------------------------

    def _finish_if_done(self, rollout: Rollout) -> None:
        execution = rollout.execution
        if execution is not None and execution.done and rollout.sending == 0 and not rollout.ended:
            rollout.ended = True
            self._spawn(self._finish(rollout, *ending(rollout, execution)))

    async def _fail(self, rollout: Rollout, error: CallError) -> None:
        if not rollout.ended:
            rollout.ended = True
            stats = rollout.tally.stats(rollout.event.time, datetime.now(UTC))
            await self._finish(rollout, *failure(rollout.event, error, stats))

    async def _finish(self, rollout: Rollout, what: str, data: bytes) -> None:
        await self._end(rollout.event, what, data)
        self.forget(rollout)
        rollout.delivery.ack()

    async def _end(self, request: Event, what: str, data: bytes) -> None:
        event = self.bus.event(
            type=what,
            subject=request.replyto,
            data=data,
            rolloutid=request.rolloutid,
            callkey=request.callkey,
            causationid=request.id,
            traceparent=request.traceparent,
        )
        try:
            await self.bus.publish(event)
        except Conflict as conflict:
            self._log.warning("rollout.ended_elsewhere", rollout=request.rolloutid, by=conflict.stored.event.source)

    def forget(self, rollout: Rollout) -> None:
        """Lets go of a rollout; nothing that arrives for it later has any effect."""
        rollout.ended = True
        if self._rollouts.pop(rollout.key, None) is not None:
            self._room.release()
            if not self._rollouts:
                self._idle.set()
        if rollout.execution is not None:
            rollout.execution.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            for rollout in list(takewhile(self._is_overdue, self._rollouts.values())):
                message = f"the rollout took longer than its deadline_s of {self._config.deadline_s:g} seconds"
                self._log.warning("rollout.deadline", rollout=rollout.id, deadline_s=self._config.deadline_s)
                self._spawn(self._fail(rollout, CallError(kind="deadline", message=message)))

    def _is_overdue(self, rollout: Rollout) -> bool:
        return time.monotonic() - rollout.started > self._config.deadline_s

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("rollout.step_failed", exc_info=error)


def _prefix(callkey: str) -> str:
    return callkey.rpartition("--")[0] + "--" if "--" in callkey else ""
