"""Serves the calls of one pool: take a request, answer it, put the reply in the log, acknowledge.

The frame of model and resources workers. A request is acknowledged only after its reply is in the log; one that may
have been delivered to another worker too is first looked up there, whenever it is begun or tried again. What fails is
answered with a typed error; what cannot be answered at all ends in a dead letter; what the log's absence kept from an
answer is given back. A call of a cancelled rollout is answered with an error of kind `cancelled`, without work or in
the middle of it, so that each call has its one reply. It never decides what a request means: the `answer` it is given
does.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from math import isqrt
from typing import Any, NamedTuple

import structlog
from msgspec import Raw

from bus import Bus, BusError, Conflict, DeadLetter, Delivery, PayloadTooLarge, Pool, Unreachable
from bus.errors import BusClosed, Unreadable
from bus.overview import slots_from
from components.workers.answers import answer_to, bury_holder
from components.workers.cancellations import Cancellations, cancelled
from components.workers.ending import error_data
from components.workers.places import Places
from components.workers.spec import WorkerSpec
from components.workers.stops import UNCOUNTED, UNSUSPECTED, Ends, in_a_row
from components.workers.suspects import Suspect, say_trying, suspect
from contracts.events import NOTHING, CallError, Event

RETURN_S = 1.0
"""Seconds after which a delivery that is given back comes again, to anybody."""
GRACE_S = 0.25
"""Seconds in which a worker begins nothing after a call that may be what ends it, unless that is answered before.

Not where all that is known to have ended meanwhile was told to: then tens of thousands may come once more.
"""
STOP_S = 2.0
"""Seconds that cancelled calls get to end."""


class Reply(NamedTuple):
    """What a request is answered with."""

    data: bytes
    capture: Raw = NOTHING
    on_stored: Callable[[], None] | None = None
    """Told that this reply, and no other, is in the log."""
    policy: tuple[int, int] | None = None
    """The oldest and the newest policy version in it."""
    generated: int = 0
    """The tokens in its capture, where its `usage` does not say how many they are."""


Answer = Callable[[Delivery, bytes], Awaitable[Reply]]
"""Turns a request and its data into the reply; raises `CallRefused` with the typed error."""


class _Work(NamedTuple):
    """What a task is at work on."""

    delivery: Delivery
    places: int
    """That it has."""


class CallRefused(Exception):
    """The call is answered with this error."""

    def __init__(self, error: CallError) -> None:
        self.error = error
        super().__init__(error.message)


class Callee:
    """One worker's share of a pool."""

    def __init__(
        self,
        bus: Bus,
        answer: Answer,
        *,
        concurrency: int,
        until_due: Callable[[Event], Awaitable[None]] | None = None,
        on_broken_off: Callable[[Event], None] | None = None,
        on_other_reply: Callable[[Event], None] | None = None,
    ) -> None:
        """`until_due` waits until a request that may be what ends its workers has to wait for no other one.

        `on_broken_off` is told of a request that was begun and not answered: it may come again, maybe to here.

        `on_other_reply` is told of a request whose reply in the log may be another than the one that was made here.
        """
        self._bus, self._answer, self._until_due = bus, answer, until_due
        self._on_broken_off, self._on_other_reply = on_broken_off, on_other_reply
        self._cancellations = Cancellations(bus, self._cancel)
        self._answering: dict[str, set[asyncio.Task[Any]]] = {}
        """By rollout, the tasks that are at work on a call of it."""
        self._pool: Pool | None = None
        self._spec: WorkerSpec
        self._ends: Ends
        self._concurrency = concurrency
        self._places = Places(concurrency)
        self._tasks: dict[asyncio.Task[Any], _Work] = {}
        """Those at work on a call."""
        self._waiting: set[asyncio.Task[Any]] = set()
        self._begun, self._at_once = set[asyncio.Task[None]](), 1
        """Tasks at work on suspects since the last pause, and how many there may be before the next."""
        self._last: set[str] = set()
        """Requests that have let others pass, and are tried when they come again."""
        self._draining = False
        self._log = structlog.get_logger()

    async def join(self, spec: WorkerSpec, types: Collection[str]) -> None:
        """Joins the pool of the spec's instance, for requests of these types.

        Where the pool had more slots in an earlier config, what waits in those is served too.
        """
        self._spec, self._ends = spec, Ends(self._bus, spec.instance)
        await self._cancellations.start()
        slots = spec.slots_of.get(spec.instance, 1)
        earlier = await slots_from(self._bus, spec.kind, spec.instance, slots)
        self._pool = await self._bus.pool(
            spec.kind,
            spec.instance,
            [*spec.slots, *(slot for slot in earlier if slot % slots in spec.slots)],
            types=types,
            batch=min(256, self._concurrency),
            places=self._concurrency,
            max_deliver=UNCOUNTED,
            on_dead=self._on_dead,
        )

    @property
    def in_progress(self) -> int:
        """Requests taken and not yet acknowledged."""
        return len(self._tasks)

    async def serve(self) -> None:
        """Takes requests until the pool is stopped, then finishes those in progress."""
        assert self._pool is not None
        following = asyncio.create_task(self._cancellations.follow())
        try:
            async for delivery in self._pool:
                try:
                    suspected = await self._suspect(delivery)
                    warned = suspected is not None and (suspected.ended or await self._ends.since(delivery.event.time))
                except BusError as error:
                    self._not_reached(delivery, error)
                    continue
                if suspected is not None and self._let_pass(delivery, suspected):
                    delivery.nak(RETURN_S)
                    continue
                places = suspected.places if suspected else 1
                if places > 1:
                    self._lend(1 - places)
                await self._places.take(places)
                if self._draining:
                    self._places.give(places)
                    delivery.nak(RETURN_S)
                    continue
                task = asyncio.create_task(self._handle(delivery, suspected))
                self._tasks[task] = _Work(delivery, places)
                task.add_done_callback(self._finished)
                if warned:
                    await self._pause(task, suspected)
            while self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def wait(self, seconds: float | None, others: Collection[asyncio.Task[Any]] = ()) -> None:
        """Waits to try a call again, for so long or until these others are done, without its places.

        Raises `CallRefused` if another worker has answered it.
        A worker that stops does not wait for that: it comes again.
        """
        task = asyncio.current_task()
        assert task is not None
        work = self._tasks.get(task)
        places = work.places if work is not None else 1
        self._places.give(places)
        self._lend(places)
        self._waiting.add(task)
        try:
            if self._draining:
                task.cancel()
            await (asyncio.wait(others, timeout=seconds) if others else asyncio.sleep(seconds or 0.0))
            await self._places.take(places)
        except BaseException:
            self._places.seize(places)  # `_finished` gives them back
            raise
        finally:
            self._waiting.remove(task)
            self._lend(-places)
        if work is None or not work.delivery.redelivered:
            return
        if await self._bus.last(work.delivery.event.replyto) is not None:
            raise CallRefused(CallError(kind="cancelled", message="another worker has answered it"))

    async def drain(self, seconds: float) -> None:
        """Stops taking, waits for what is in progress, and gives back what waits, and what is not done in time."""
        self._draining = True
        if self._pool is not None:
            await self._pool.stop()
        self._places.give(self._concurrency)  # `serve` may wait with a request in its hands: it gives that back
        for task in self._waiting:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        if self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks, timeout=STOP_S)

    def _cancel(self, rollout: str) -> None:
        """Breaks off the calls of a rollout; those of a run are named by its agents' workers, one rollout each."""
        for task in self._answering.pop(rollout, ()):
            task.cancel()

    def _finished(self, task: asyncio.Task[None]) -> None:
        places = self._tasks.pop(task).places
        self._places.give(places)
        if places > 1:
            self._lend(places - 1)

    def _lend(self, places: int) -> None:
        """Has the pool ask for so many more, beside the one place that each request has by being here."""
        if self._pool is not None:
            self._pool.lend(places)

    async def _suspect(self, delivery: Delivery) -> Suspect | None:
        if delivery.num_delivered <= UNSUSPECTED:
            return None
        return await suspect(self._bus, delivery.event, self._concurrency)

    async def _pause(self, task: asyncio.Task[None], suspected: Suspect | None) -> None:
        """Begins nothing for a while; of what has ended no worker yet, twice as much each time before the next one."""
        self._begun.add(task)
        if len(self._begun) >= self._at_once or (suspected is not None and suspected.ended):
            await asyncio.wait(self._begun, timeout=GRACE_S)
            self._begun.clear()
            self._at_once = min(2 * self._at_once, isqrt(self._concurrency))

    def _let_pass(self, delivery: Delivery, suspected: Suspect) -> bool:
        """Whether it goes behind whatever else is here first: what has ended a worker already is tried last."""
        if suspected.ended == 0 or suspected.exhausted:
            return False
        passed = delivery.event.id in self._last
        (self._last.discard if passed else self._last.add)(delivery.event.id)
        return not passed

    async def _handle(self, delivery: Delivery, suspected: Suspect | None) -> None:
        """Answers one request. Where the log cannot be reached it is given back."""
        request = delivery.event
        structlog.contextvars.bind_contextvars(rollout=request.rolloutid, call=request.callkey)
        try:
            if delivery.redelivered and await self._bus.last(request.replyto) is not None:
                self._log.info("call.already_answered", rollout=request.rolloutid, call=request.callkey)
                self._other_reply(request)
            else:
                await self._settle(delivery, request, suspected)
        except asyncio.CancelledError:
            self._give_back(delivery)
            raise
        except BusError as error:
            self._not_reached(delivery, error)
        except Exception:  # noqa: BLE001 - a fault of ours: no call may be held for ever
            self._log.exception("call.broke", rollout=request.rolloutid, call=request.callkey)
            self._give_back(delivery)
        else:
            delivery.ack()

    async def _settle(self, delivery: Delivery, request: Event, suspected: Suspect | None) -> None:
        if suspected is not None and not suspected.exhausted:
            if self._until_due is not None:
                await self._until_due(request)  # or what ends its worker meanwhile would seem to be this one
            await say_trying(self._bus, request, self._spec.kind, self._spec.instance, suspected)
        # a cancellation that is heard from here on finds the call at work
        if (reason := self._cancellations.of(request.rolloutid)) is not None:
            await self._publish(request, "failed", Reply(error_data(cancelled(reason))))
        elif suspected is not None and suspected.exhausted:
            await self._bury(delivery, suspected.ended)
        else:
            await self._reply(delivery, request)

    async def _bury(self, delivery: Delivery, workers: int) -> None:
        message = (
            f"{in_a_row(workers)} ended, or gave it back, without answering it, at last with no other call beside it: "
            "their logs say how they ended"
        )
        letter = delivery.letter("exhausted", message)
        await self._bus.dead_letter(letter, self._spec.kind, self._spec.instance)
        await self._on_dead(letter)

    def _not_reached(self, delivery: Delivery, error: BusError) -> None:
        request = delivery.event
        self._log.warning("call.given_back", rollout=request.rolloutid, call=request.callkey, error=str(error))
        self._give_back(delivery)

    def _give_back(self, delivery: Delivery) -> None:
        self._break_off(delivery.event)
        delivery.nak(RETURN_S)

    def _break_off(self, request: Event) -> None:
        if self._on_broken_off is not None:
            self._on_broken_off(request)

    def _other_reply(self, request: Event) -> None:
        if self._on_other_reply is not None:
            self._on_other_reply(request)

    async def _reply(self, delivery: Delivery, request: Event) -> None:
        started = time.perf_counter()
        task = asyncio.current_task()
        assert task is not None
        self._answering.setdefault(request.rolloutid, set()).add(task)
        try:
            outcome, reply = await self._answered(delivery)
        except asyncio.CancelledError:
            if self._draining or (reason := self._cancellations.of(request.rolloutid)) is None:
                raise
            task.uncancel()
            self._break_off(request)
            self._log.info("call.cancelled", rollout=request.rolloutid, call=request.callkey, reason=reason)
            outcome, reply = "failed", Reply(error_data(cancelled(reason)))
        finally:
            self._leave(request.rolloutid, task)
        await self._publish(request, outcome, reply, time.perf_counter() - started)

    def _leave(self, rollout: str, task: asyncio.Task[Any]) -> None:
        tasks = self._answering.get(rollout)
        if tasks is not None:
            tasks.discard(task)
            if not tasks:
                del self._answering[rollout]

    async def _publish(self, request: Event, outcome: str, reply: Reply, elapsed: float = 0.0) -> None:
        what = f"{request.type.partition('.')[0]}.{outcome}"
        event = answer_to(
            self._bus,
            request,
            what,
            reply.data,
            elapsed=elapsed,
            capture=reply.capture,
            policy=reply.policy,
            generated=reply.generated,
        )
        try:
            await self._bus.publish(event)
        except PayloadTooLarge as error:
            self._log.warning("call.reply_too_large", rollout=request.rolloutid, call=request.callkey, size=error.size)
            self._break_off(request)
            refused = error_data(CallError(kind="bad_request", message=str(error)))
            await self._publish(request, "failed", Reply(refused), elapsed)
        except Conflict as conflict:
            self._log.info("call.answered_elsewhere", rollout=request.rolloutid, by=conflict.stored.event.source)
            self._other_reply(request)
        except Unreadable as held:
            await bury_holder(self._bus, request, held.letter)
            self._other_reply(request)
        else:
            if reply.on_stored is not None:
                reply.on_stored()

    async def _on_dead(self, letter: DeadLetter) -> None:
        """The call of a request that cannot be processed fails, so that nothing waits for it."""
        if letter.event is not None:
            error = CallError(kind="poison", message=letter.message, details={"reason": letter.reason})
            await self._publish(letter.event, "failed", Reply(error_data(error)))

    async def _answered(self, delivery: Delivery) -> tuple[str, Reply]:
        request = delivery.event
        try:
            return "replied", await self._answer(delivery, await self._bus.fetch_data(request))
        except CallRefused as refused:
            error = refused.error
        except (Unreachable, BusClosed):
            raise  # the log is away: no fault of the call
        except (Exception, SystemExit, asyncio.CancelledError) as exception:  # a component's fault ends its own call
            task = asyncio.current_task()
            if isinstance(exception, asyncio.CancelledError) and (self._draining or (task and task.cancelling())):
                raise
            self._log.exception("call.raised", rollout=request.rolloutid, call=request.callkey)
            error = CallError(
                kind="internal",
                message=f"{request.type} raised {type(exception).__name__}: {exception}",
                details={"exception": type(exception).__name__},
            )
        self._log.warning(
            "call.answered_with_error",
            rollout=request.rolloutid,
            call=request.callkey,
            error=error.kind,
            message=error.message,
        )
        return "failed", Reply(error_data(error))
