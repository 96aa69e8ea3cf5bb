"""Serves rollouts: each is an agent's coroutine on its private loop, fed with replies in log order.

Takes rollout requests from the agents pool, publishes the calls that the agent makes, hears their replies over one
ordered consumer, and writes the terminal event. A rollout that may have been begun before is adopted (`adoption`): its
history is re-executed and it goes on from its last event. Agent code runs nowhere but on the private loop, and a
rollout whose step fails for good is ended or given back: none is ever held without going on.
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

from bus import Bus, BusError, Conflict, DeadLetter, Delivery, Pool, Replies
from bus.errors import PublishRefused
from components.agents.base import Agent, AgentConfig
from components.durable import Call, Execution, NondeterminismError, Reply, UnknownReply
from components.workers import adoption
from components.workers.ending import ending, failure
from components.workers.execution import execution_of
from components.workers.rollout import Rollout, prefix_of
from components.workers.spec import WorkerSpec
from contracts.events import CallError, ErrorKind, Event, Recorded
from contracts.rollouts import RolloutRequest, RolloutResult

_REQUEST = msgspec.json.Decoder(RolloutRequest)
SWEEP_S = 1.0
"""Seconds between two looks for rollouts past their deadline."""
GIVE_BACK_S = 1.0
"""Seconds after which a rollout that is given back goes to a worker again."""


class AgentWorker:
    """One worker of an agents pool."""

    def __init__(
        self, bus: Bus, worker: str, agent: type[Agent[AgentConfig]], config: AgentConfig, spec: WorkerSpec
    ) -> None:
        self.bus, self.worker = bus, worker
        self._replies: Replies | None = None
        self._pool: Pool | None = None
        self._agent, self._config, self._spec = agent, config, spec
        self._room = asyncio.Semaphore(config.pool.concurrency)
        self._rollouts: dict[tuple[str, str], Rollout] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._draining = False
        self._log = structlog.get_logger()

    @property
    def in_progress(self) -> int:
        """Rollouts that this worker holds."""
        return len(self._rollouts)

    async def start(self) -> None:
        """Listens for replies, and only then joins the pool."""
        self._replies = await self.bus.replies(self.worker, self._on_reply)
        self._pool = await self.bus.pool(
            self._spec.kind,
            self._spec.instance,
            self._spec.slots,
            types=("rollout.requested", "agent.requested"),
            batch=min(256, self._config.pool.concurrency),
            on_dead=self._on_dead,
        )

    async def serve(self) -> None:
        """Takes rollouts until the pool is stopped."""
        assert self._pool is not None
        sweeper = asyncio.create_task(self._sweep())
        try:
            async for delivery in self._pool:
                await self._room.acquire()
                if self._draining:
                    self._room.release()
                    delivery.nak(GIVE_BACK_S)
                else:
                    self._spawn(self._begin(delivery))
        finally:
            sweeper.cancel()

    async def drain(self, seconds: float) -> None:
        """Waits for the rollouts in progress, and gives back those that are not done in time: they are adopted."""
        self._draining = True
        if self._pool is not None:
            await self._pool.stop()
        if self._rollouts:
            self._idle.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), seconds)
        for rollout in list(self._rollouts.values()):
            self._give_back(rollout)

    async def hear(self, worker: str) -> None:
        """From now on hears the replies to another worker's calls too, in one order with its own."""
        assert self._replies is not None
        await self._replies.subscribe_also(worker)

    # --- begin -------------------------------------------------------------------------------------------------

    async def _begin(self, delivery: Delivery) -> None:
        try:
            request = _REQUEST.decode(await self.bus.fetch_data(delivery.event))
        except msgspec.DecodeError as error:
            self._room.release()
            await self._bury(delivery, f"not a rollout request: {error}")
            return
        except BusError as error:
            self._room.release()
            self._log.warning("rollout.not_begun", rollout=delivery.event.rolloutid, error=str(error))
            delivery.nak(GIVE_BACK_S)
            return
        rollout = Rollout(delivery, request, datetime.now(UTC))
        if rollout.key in self._rollouts:
            self._room.release()
            delivery.release()
            return
        self._rollouts[rollout.key] = rollout
        if delivery.redelivered:
            await self._guarded(rollout, self._adopt(rollout))
        else:
            rollout.execution = self.execution_of(rollout)
            self._advance(rollout, rollout.execution.start())

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
        try:
            await self.bus.dead_letter(letter, self._spec.kind, self._spec.instance)
            await self._on_dead(letter)
        except BusError as error:
            self._log.warning("rollout.not_buried", rollout=delivery.event.rolloutid, error=str(error))
            delivery.nak(GIVE_BACK_S)
        else:
            delivery.ack()

    async def _on_dead(self, letter: DeadLetter) -> None:
        """The rollout of a request that cannot be processed fails, so that nothing waits for it."""
        if letter.event is not None and letter.reason != "subject_mismatch":
            error = CallError(kind="poison", message=letter.message, details={"reason": letter.reason})
            await self._end(letter.event, *failure(letter.event, error, None))

    def execution_of(self, rollout: Rollout) -> Execution[RolloutResult]:
        """A fresh execution of the agent's code for this rollout."""
        return execution_of(self._agent, self._config, rollout.event, rollout.request, prefix=rollout.prefix)

    async def _adopt(self, rollout: Rollout) -> None:
        """Carries a rollout on from its last event in the log. Replies that arrive meanwhile wait."""
        if rollout.adopting or rollout.ended:
            return
        rollout.adopting = True
        if rollout.pending is None:
            rollout.pending = deque()
        try:
            calls = await adoption.adopt(self, rollout)
        except adoption.Lost as lost:
            self._log.info("rollout.lost", rollout=rollout.id, reason=str(lost))
            self._forget(rollout)
            if lost.finished:
                rollout.delivery.ack()
            else:
                rollout.delivery.release()
            return
        except NondeterminismError as error:
            self._log.error("rollout.nondeterministic", rollout=rollout.id, message=str(error))
            await self._fail(rollout, CallError(kind="nondeterminism", message=str(error)))
            return
        finally:
            rollout.adopting = False
        if not rollout.ended:
            self._advance(rollout, calls)
            await self._deliver_pending(rollout)

    # --- go on -------------------------------------------------------------------------------------------------

    def _advance(self, rollout: Rollout, calls: list[Call]) -> None:
        """Publishes the calls that the agent made; ends the rollout when it is done and all of them are stored."""
        for call in calls:
            rollout.sending += 1
            self._spawn(self._guarded(rollout, self._send(rollout, call)))
        if rollout.timers:
            self._drop_cancelled_timers(rollout)
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
        other: Event | None = None
        try:
            await self.bus.publish(event)
        except Conflict as conflict:
            if conflict.stored.event.replyto != event.replyto:  # else this worker wrote it, before an adoption
                other = conflict.stored.event
        finally:
            rollout.sending -= 1
        if other is not None:
            self._log.warning("call.written_by_another", rollout=rollout.id, by=other.source)
            await self._adopt(rollout)
            return
        if call.kind == "timers":
            self.arm(rollout, event, call.delay)
        self._finish_if_done(rollout)

    def arm(self, rollout: Rollout, request: Event, delay: float) -> None:
        """Fires a timer: after `delay` seconds its reply goes into the log, like any other."""
        if rollout.ended or rollout.execution is None or request.callkey not in rollout.execution.outstanding:
            return
        if rollout.timers is None:
            rollout.timers = {}
        loop = asyncio.get_running_loop()
        rollout.timers[request.callkey] = loop.call_later(max(0.0, delay), self._fire_soon, rollout, request)

    def _fire_soon(self, rollout: Rollout, request: Event) -> None:
        if rollout.timers is not None:
            rollout.timers.pop(request.callkey, None)
        self._spawn(self._guarded(rollout, self._fire(request)))

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

    def _drop_cancelled_timers(self, rollout: Rollout) -> None:
        if rollout.timers is None or rollout.execution is None:
            return
        outstanding = rollout.execution.outstanding
        for key in [key for key in rollout.timers if key not in outstanding]:
            rollout.timers.pop(key).cancel()

    def _on_reply(self, recorded: Recorded) -> None:
        event = recorded.event
        rollout = self._rollouts.get((event.rolloutid, prefix_of(event.callkey)))
        if rollout is None or rollout.ended:
            return
        if rollout.pending is not None:
            rollout.pending.append(recorded)
        elif event.dataref:
            rollout.pending = deque([recorded])
            self._spawn(self._guarded(rollout, self._deliver_pending(rollout)))
        else:
            try:
                self._deliver(rollout, recorded, bytes(event.data))
            except Exception as error:  # noqa: BLE001 - the reader goes on for all other rollouts
                self._spawn(self._guarded(rollout, self._broke(rollout, error)))

    def _deliver(self, rollout: Rollout, recorded: Recorded, data: bytes) -> None:
        """Gives one reply to the agent and publishes what it does next."""
        event = recorded.event
        execution = rollout.execution
        if execution is None or rollout.ended or recorded.seq <= rollout.seq:
            return
        rollout.seq = recorded.seq
        rollout.tally.add(event, data)
        reply = Reply(key=event.callkey, type=event.type, data=data, time=event.time, id=event.id, seq=recorded.seq)
        try:
            calls = execution.deliver(reply)
        except UnknownReply:
            self._log.warning("reply.unknown", rollout=rollout.id, call=event.callkey)
            return
        self._advance(rollout, calls)

    async def _deliver_pending(self, rollout: Rollout) -> None:
        """Delivers the replies that waited, in their order; an adoption that begins meanwhile takes them over."""
        while rollout.pending:
            recorded = rollout.pending[0]
            data = await self.bus.fetch_data(recorded.event)
            if rollout.adopting or rollout.ended or rollout.pending[0] is not recorded:
                return
            rollout.pending.popleft()
            self._deliver(rollout, recorded, data)
        rollout.pending = None

    # --- end ---------------------------------------------------------------------------------------------------

    def _finish_if_done(self, rollout: Rollout) -> None:
        execution = rollout.execution
        if execution is not None and execution.done and not (rollout.sending or rollout.ended or rollout.adopting):
            rollout.ended = True
            self._spawn(self._guarded(rollout, self._finish(rollout, *ending(rollout, execution))))

    async def _fail(self, rollout: Rollout, error: CallError) -> None:
        rollout.ended = True
        stats = rollout.tally.stats(rollout.event.time, datetime.now(UTC))
        await self._finish(rollout, *failure(rollout.event, error, stats))

    async def _finish(self, rollout: Rollout, what: str, data: bytes) -> None:
        await self._end(rollout.event, what, data)
        self._forget(rollout)
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

    async def _guarded(self, rollout: Rollout, step: Coroutine[None, None, None]) -> None:
        """One step of a rollout. Where the log cannot be reached the rollout is given back; all else fails it."""
        try:
            try:
                await step
            except Exception as error:
                if isinstance(error, BusError) and not isinstance(error, PublishRefused):
                    raise
                await self._broke(rollout, error)
        except Exception:  # noqa: BLE001 - nothing of one rollout may stop the others
            self._log.exception("rollout.given_back", rollout=rollout.id)
            self._give_back(rollout)

    async def _broke(self, rollout: Rollout, error: Exception) -> None:
        """Fails a rollout with what a step of it raised: an event that the log refuses, or a fault of ours."""
        self._log.error("rollout.broke", rollout=rollout.id, exc_info=error)
        if self._rollouts.get(rollout.key) is rollout:
            kind: ErrorKind = "bad_request" if isinstance(error, PublishRefused) else "internal"
            await self._fail(rollout, CallError(kind=kind, message=f"{type(error).__name__}: {error}"))

    def _give_back(self, rollout: Rollout) -> None:
        self._forget(rollout)
        rollout.delivery.nak(GIVE_BACK_S)

    def _forget(self, rollout: Rollout) -> None:
        """Lets go of a rollout; nothing that arrives for it later has any effect."""
        rollout.ended = True
        if self._rollouts.get(rollout.key) is rollout:
            del self._rollouts[rollout.key]
            self._room.release()
            if not self._rollouts:
                self._idle.set()
        self.close(rollout)

    def close(self, rollout: Rollout) -> None:
        """Ends a rollout's execution and its timers, so that another execution can take their place."""
        for timer in (rollout.timers or {}).values():
            timer.cancel()
        rollout.timers = None
        if rollout.execution is not None:
            rollout.execution.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            for rollout in list(takewhile(self._is_overdue, self._rollouts.values())):
                if rollout.ended:
                    continue
                message = f"the rollout took longer than its deadline_s of {self._config.deadline_s:g} seconds"
                self._log.warning("rollout.deadline", rollout=rollout.id, deadline_s=self._config.deadline_s)
                error = CallError(kind="deadline", message=message)
                rollout.ended = True
                self._spawn(self._guarded(rollout, self._fail(rollout, error)))

    def _is_overdue(self, rollout: Rollout) -> bool:
        return time.monotonic() - rollout.started > self._config.deadline_s

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
