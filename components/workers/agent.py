"""Serves rollouts: each is an agent's coroutine on its private loop, fed with replies in log order.

Takes rollout requests from the agents pool, publishes the calls that the agent makes (`calls`), hears their replies
over one ordered consumer, and writes the terminal event. A rollout that may have been begun before is adopted
(`adoption`): its history is re-executed and it goes on from its last event. One that another worker adopted is dropped;
one that is cancelled (`cancellations`) ends at once, and so do its calls.
Agent code runs nowhere but on the private loop, and a rollout whose step fails is ended or given back: none is ever
held without going on.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec
import structlog

from bus import Bus, Pool, Replies, Unreachable
from bus.deadletter import Reason
from bus.errors import BlobLost, BusClosed, Unreadable
from components.agents.base import Agent, AgentConfig
from components.durable import Call, Execution, NondeterminismError, Reply, UnknownReply
from components.workers import adoption
from components.workers.calls import Calls, Posted, Unsendable
from components.workers.cancellations import Cancellations, cancel, cancelled
from components.workers.deadlines import strike_overdue
from components.workers.ending import ending, failure
from components.workers.ends import end_dead, write_end
from components.workers.execution import execution_of
from components.workers.rollout import NOT_BEGUN, Rollout, prefix_of, prefix_under, share
from components.workers.spec import WorkerSpec
from components.workers.stops import UNCOUNTED, Departures, Ends
from contracts.errors import InvalidName
from contracts.events import CallError, Recorded
from contracts.ids import check_name
from contracts.rollouts import RolloutRequest, RolloutResult, RolloutStats

_REQUEST: Final = msgspec.json.Decoder(RolloutRequest)
CANCEL_S: Final = 0.05
"""Seconds in which cancellations are collected: for any number of them, what is held is looked through once."""
GIVE_BACK_S: Final = 1.0
"""Seconds after which a rollout that is given back goes to a worker again."""
ADOPTIONS: Final = 64
"""Histories that are read at once; a worker that died may leave tens of thousands."""
BATCH: Final = 256


class AgentWorker:
    """One worker of an agents pool."""

    def __init__(
        self, bus: Bus, worker: str, agent: type[Agent[AgentConfig]], config: AgentConfig, spec: WorkerSpec
    ) -> None:
        self._bus, self._worker = bus, worker
        self._agent, self._config, self._spec = agent, config, spec
        self._calls = Calls(bus, worker, spec.slots_of, self._spawn, self._sent)
        self._cancellations = Cancellations(bus, self._on_cancel)
        self._cancelling: asyncio.TimerHandle | None = None
        self._replies: Replies | None = None
        self._pool: Pool | None = None
        self._room = asyncio.Semaphore(config.pool.concurrency)
        self._adopting, self._alone = asyncio.Semaphore(ADOPTIONS), asyncio.Semaphore(1)
        self._rollouts: dict[tuple[str, str], Rollout] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._draining = False
        self._departures, self._ends = Departures(bus), Ends(bus, spec.instance)
        self._log = structlog.get_logger()

    @property
    def in_progress(self) -> int:
        """Rollouts that this worker holds."""
        return len(self._rollouts)

    async def start(self) -> None:
        """Listens for replies, learns what is cancelled, and only then joins the pool."""
        self._replies = await self._bus.replies(self._worker, self._on_reply)
        await self._cancellations.start()
        self._pool = await self._bus.pool(
            self._spec.kind,
            self._spec.instance,
            self._spec.slots,
            types=("rollout.requested", "agent.requested"),
            batch=min(BATCH, self._config.pool.concurrency),
            places=self._config.pool.concurrency,
            max_deliver=UNCOUNTED,
            on_dead=partial(end_dead, self._bus),
        )

    async def serve(self) -> None:
        """Takes rollouts until the pool is stopped."""
        watching = [asyncio.create_task(self._fence(number)) for number in range(self._bus.config.partitions)]
        deadlines = strike_overdue(self._bus, self._config.deadline_s, self._rollouts, self._overdue)
        watching += [asyncio.create_task(deadlines), asyncio.create_task(self._cancellations.follow())]
        tasks = {asyncio.create_task(self._take()), *watching}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def drain(self, seconds: float) -> None:
        """Gives back all rollouts, so that they are adopted elsewhere: a reply may take long, or not come from here.

        Those with a publish in flight are given back when it is settled, after `seconds` in any case.
        """
        self._draining = True
        if self._pool is not None:
            await self._pool.stop()
        for rollout in list(self._rollouts.values()):
            self._give_back_if_settled(rollout)
        if self._rollouts:
            self._idle.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._idle.wait()
        for rollout in list(self._rollouts.values()):
            self._give_back(rollout)

    # --- begin -------------------------------------------------------------------------------------------------

    async def _take(self) -> None:
        assert self._pool is not None
        async for delivery in self._pool:
            await self._room.acquire()
            await self._bus.room()
            rollout = Rollout(delivery)
            if self._draining or rollout.key in self._rollouts:
                self._room.release()
                delivery.nak(GIVE_BACK_S)
                continue
            self._rollouts[rollout.key] = rollout
            self._spawn(rollout, self._begin(rollout))

    async def _begin(self, rollout: Rollout) -> None:
        try:
            event = rollout.event  # whose data is not copied: it is kept as long as the rollout
            rollout.request = _REQUEST.decode(await self._bus.fetch_data(event) if event.dataref else event.data)
            check_name(rollout.request.run_id, "run ID")
            share(rollout.request, "agent", "run_id")
        except (msgspec.DecodeError, UnicodeDecodeError, InvalidName, BlobLost) as error:
            if await self._bus.last(event.replyto) is not None:
                self._lose(rollout, "it has already ended", finished=True)
            else:
                await self._bury(rollout, "undecodable", f"not a rollout request: {error}")
            return
        reason = await self._cancellations.surely_of(*rollout.names, run=rollout.request.run_id)
        if rollout.ended:
            return
        if reason is not None:
            await self._cancel(rollout, reason)
            return
        if rollout.delivery.redelivered or rollout.request.fork is not None:
            rollout.stale = True
            self._hold(rollout)
        else:
            rollout.epoch = 0
            rollout.execution = self._execution_of(rollout)
            self._advance(rollout, rollout.execution.start())

    async def _bury(self, rollout: Rollout, reason: Reason, message: str) -> None:
        rollout.ended = True
        letter = rollout.delivery.letter(reason, message)
        await self._bus.dead_letter(letter, self._spec.kind, self._spec.instance)
        await end_dead(self._bus, letter)
        self._forget(rollout)
        rollout.delivery.ack()

    def _execution_of(self, rollout: Rollout) -> Execution[RolloutResult]:
        return execution_of(self._agent, self._config, rollout.event, rollout.request, prefix=rollout.prefix)

    # --- go on -------------------------------------------------------------------------------------------------

    def _advance(self, rollout: Rollout, calls: list[Call]) -> list[asyncio.Future[Any]]:
        """Publishes the calls that the agent made; ends the rollout when it is done and all of them are stored."""
        rollout.sending += len(calls)
        sends = [self._calls.send(rollout, call) for call in calls]
        self._calls.disarm(rollout)
        self._finish_if_done(rollout)
        return sends

    def _sent(self, rollout: Rollout, posted: Posted | None) -> None:
        """A call is stored, or not: without `posted` whoever sent it says why."""
        rollout.sending -= 1
        try:
            if posted is not None and not self._calls.settle(rollout, posted):
                rollout.stale = True
            if rollout.stale:
                self._hold(rollout)
            if posted is not None:
                self._finish_if_done(rollout)
            if posted is not None and self._draining:
                self._give_back_if_settled(rollout)
        except Exception as error:  # noqa: BLE001 - no fault may leave a rollout held for ever
            self._broke(rollout, error)

    def _on_reply(self, recorded: Recorded) -> None:
        event = recorded.event
        rollout = self._rollouts.get((event.rolloutid, prefix_of(event.callkey)))
        if rollout is None or rollout.ended or self._draining:
            return
        if rollout.queue is not None or event.dataref:
            self._hold(rollout, recorded)
            return
        try:
            self._deliver(rollout, recorded, bytes(event.data))
        except Exception as error:  # noqa: BLE001 - the reader goes on for all other rollouts
            self._broke(rollout, error)

    def _deliver(self, rollout: Rollout, recorded: Recorded, data: bytes) -> None:
        """Gives one reply to the agent and publishes what it does next."""
        event = recorded.event
        if rollout.execution is None or recorded.seq <= rollout.seq:
            return
        rollout.seq = recorded.seq
        rollout.tally.add(event, data)
        reply = Reply(key=event.callkey, type=event.type, data=data, time=event.time, id=event.id, seq=recorded.seq)
        try:
            calls = rollout.execution.deliver(reply)
        except UnknownReply:
            self._log.warning("reply.unknown", rollout=rollout.id, call=event.callkey)
            return
        self._advance(rollout, calls)

    def _hold(self, rollout: Rollout, *replies: Recorded) -> None:
        """From now on replies wait, until the rollout is adopted and those before them have been given."""
        if rollout.queue is None:
            rollout.queue = deque()
        rollout.queue.extend(replies)
        if not rollout.working and not rollout.ended:
            rollout.working = True
            self._spawn(rollout, self._work_off(rollout))

    async def _work_off(self, rollout: Rollout) -> None:
        """Adopts the rollout where it is stale, and gives it the replies that wait, in their order."""
        while rollout.queue is not None and not rollout.ended:
            if rollout.stale:
                if rollout.sending:
                    break  # the history must have all calls of its own; the last of them comes back here
                await self._adopt(rollout)
            elif rollout.queue:
                recorded = rollout.queue[0]
                data = await self._bus.fetch_data(recorded.event)
                if not rollout.stale and not rollout.ended:
                    rollout.queue.popleft()
                    self._deliver(rollout, recorded, data)
            else:
                rollout.queue = None
        rollout.working = False

    async def _adopt(self, rollout: Rollout) -> None:
        """Carries a rollout on from its last event in the log."""
        assert self._replies is not None
        rollout.stale = False
        alone = adoption.suspect(rollout) and await self._ends.since(rollout.event.time)
        async with self._alone if alone else self._adopting:
            if rollout.ended:
                return  # while it waited for its turn
            try:
                resumed = await adoption.adopt(
                    self._bus, self._replies, self._worker, rollout, self._execution_of, departures=self._departures
                )
            except adoption.Lost as lost:
                self._lose(rollout, str(lost), finished=lost.finished)
            except adoption.Exhausted as error:
                await self._bury(rollout, "exhausted", str(error))
            except NondeterminismError as error:
                await self._fail(rollout, CallError(kind="nondeterminism", message=str(error)))
            else:
                if resumed is None:
                    return
                for request, delay in resumed.timers:
                    self._calls.arm(rollout, request, delay)
                if sends := self._advance(rollout, resumed.calls):
                    await asyncio.wait(sends)

    async def _fence(self, partition: int) -> None:
        """Drops the rollouts that other workers adopt: this one was away for too long."""
        async for event, adopted in adoption.adoptions(self._bus, partition):
            rollout = self._rollouts.get((event.rolloutid, prefix_under(event.callkey)))
            if rollout is not None and not rollout.ended and NOT_BEGUN < rollout.epoch < adopted.epoch:
                self._lose(rollout, f"{adopted.worker} adopted it as epoch {adopted.epoch}", finished=False)

    # --- end ---------------------------------------------------------------------------------------------------

    def _finish_if_done(self, rollout: Rollout) -> None:
        execution = rollout.execution
        if execution is not None and execution.done and not (rollout.sending or rollout.stale or rollout.ended):
            rollout.ended = True
            self._spawn(rollout, self._finish(rollout, partial(ending, rollout.event, execution)))

    async def _fail(self, rollout: Rollout, error: CallError) -> None:
        """Ends a rollout whose code has not ended by itself."""
        self._log.warning("rollout.failed", rollout=rollout.id, error=error.kind, message=error.message)
        rollout.ended = True
        await self._finish(rollout, partial(failure, rollout.event, error))

    def _on_cancel(self, _rollout: str) -> None:
        if self._cancelling is None:
            self._cancelling = asyncio.get_running_loop().call_later(CANCEL_S, self._cancel_held)

    def _cancel_held(self) -> None:
        """Ends what is held of the rollouts and runs that are cancelled, nested rollouts too."""
        self._cancelling = None
        for rollout in list(self._rollouts.values()):
            if rollout.ended or self._draining or not rollout.decoded:  # then `_begin` asks
                continue
            if (reason := self._cancellations.of(*rollout.names, run=rollout.request.run_id)) is not None:
                rollout.ended = True
                self._spawn(rollout, self._cancel(rollout, reason))

    async def _cancel(self, rollout: Rollout, reason: str) -> None:
        """Ends a rollout as cancelled, and names it to pools that cannot know that it is one of those meant.

        Before anything else: the end of a nested rollout may end the one around it, which then names nothing.
        """
        rollout.ended = True
        begun = rollout.epoch != NOT_BEGUN or rollout.delivery.redelivered or rollout.nested
        if begun and self._cancellations.of(rollout.id) is None:
            await cancel(self._bus, rollout.request.run_id, rollout.id, reason)
        self._log.info("rollout.cancelled", rollout=rollout.id, reason=reason)
        await self._finish(rollout, partial(failure, rollout.event, cancelled(reason)))

    async def _finish(self, rollout: Rollout, end: Callable[[RolloutStats], tuple[str, bytes]]) -> None:
        stats = rollout.stats
        await write_end(self._bus, rollout.event, *end(stats), stats)
        self._forget(rollout)
        rollout.delivery.ack()

    def _lose(self, rollout: Rollout, reason: str, *, finished: bool) -> None:
        self._log.info("rollout.lost", rollout=rollout.id, reason=reason)
        self._forget(rollout)
        if finished:
            rollout.delivery.ack()
        else:
            rollout.delivery.release()

    def _give_back_if_settled(self, rollout: Rollout) -> None:
        if not (rollout.sending or rollout.ended):
            self._give_back(rollout)

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
        rollout.close()

    def _overdue(self, rollout: Rollout) -> None:
        deadline_s = self._config.deadline_s
        log = self._log.bind(key="deadline_s", seconds=deadline_s, error="deadline")
        log.warning("deadline.struck", rollout=rollout.id, call=rollout.event.callkey)
        rollout.ended = True
        message = f"the rollout took longer than its deadline_s of {deadline_s:g} seconds"
        self._spawn(rollout, self._fail(rollout, CallError(kind="deadline", message=message)))

    # --- steps -------------------------------------------------------------------------------------------------

    def _spawn(self, rollout: Rollout, step: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._guarded(rollout, step))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _guarded(self, rollout: Rollout, step: Coroutine[None, None, None]) -> None:
        try:
            await step
        except Exception as error:  # noqa: BLE001 - no fault may leave a rollout held for ever
            self._broke(rollout, error)

    def _broke(self, rollout: Rollout, error: Exception) -> None:
        """A step raised: the rollout is given back where the log is away or takes no end of it; else it fails."""
        if self._rollouts.get(rollout.key) is not rollout:
            return
        if rollout.ended or isinstance(error, Unreachable | BusClosed):
            self._log.warning("rollout.given_back", rollout=rollout.id, error=f"{type(error).__name__}: {error}")
            self._give_back(rollout)
        elif isinstance(error, Unsendable | Unreadable):
            self._spawn(rollout, self._fail(rollout, CallError(kind="poison", message=str(error))))
        else:
            self._log.error("rollout.broke", rollout=rollout.id, exc_info=error)
            message = f"{type(error).__name__}: {error}"
            self._spawn(rollout, self._fail(rollout, CallError(kind="internal", message=message)))
