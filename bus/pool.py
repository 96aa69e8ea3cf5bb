"""The receiving end of a pool: deliveries to one worker, one after the other.

Called by worker frames. It fetches ahead as long as the worker has places for it, buries what cannot be processed as a
dead letter and goes on, and gives back what was fetched and not begun. It never settles a delivery that was handed out:
that is the worker's, after all that the delivery caused is in the log.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from bus.budget import Budget
from bus.connection import Connection
from bus.deadletter import DeadLetter, Reason, event_or_letter
from bus.errors import BusError
from bus.holding import ACK, SILENT, Held, Holding, nak
from bus.pull import ConsumerConfig, Puller
from bus.pulse import Pulse
from contracts.events import Event, Recorded

RETURN_DELAY_S: Final = 0.1
"""What was fetched and not begun is delivered to another worker after this."""
RETRY_DELAY_S: Final = 1.0
TURN: Final = 16
"""Deliveries that are handed out before the rest of the process gets its turn, even if more have been fetched."""

_log = structlog.get_logger("bus.pool")

Check = Callable[[Event], Reason | None]
"""Says why a pool cannot serve an event."""


class Delivery:
    """One event in the hands of a worker, until `ack` or `nak`. Meanwhile the pool keeps it alive at the server."""

    __slots__ = ("_held", "_holding", "event", "num_delivered", "raw", "seq", "subject")

    def __init__(self, holding: Holding, held: Held, event: Event) -> None:
        self._holding = holding
        self._held = held
        self.event = event
        self.raw = held.data
        self.seq = held.seq
        self.subject = event.subject
        self.num_delivered = held.num_delivered

    @property
    def redelivered(self) -> bool:
        """It may have been delivered before, or since: look in the log for what that left, before you act.

        Not the same as `num_delivered > 1`: a server that crashed forgets its last deliveries, and while this process
        stood still, or was cut off, another one may have been given what it has in its hands. So ask when you begin.
        """
        return self._holding.redelivered(self._held)

    @property
    def recorded(self) -> Recorded:
        """The event as it stands in the log."""
        return Recorded(seq=self.seq, subject=self.subject, event=self.event, raw=self.raw)

    def ack(self) -> None:
        """Done: all that it caused is in the log. Settling twice does nothing."""
        self._holding.settle(self._held, ACK)

    def nak(self, delay_s: float) -> None:
        """Not done: deliver it again, to anybody, after `delay_s` seconds, which must be more than 0."""
        if delay_s <= 0:
            raise ValueError("a negative ack always has a delay: without one the delivery would come back at once")
        self._holding.settle(self._held, nak(delay_s))

    def letter(self, reason: Reason, message: str) -> DeadLetter:
        """The dead letter that it becomes where the worker itself finds it dead."""
        return DeadLetter(
            reason=reason,
            message=message,
            subject=self.subject,
            seq=self.seq,
            num_delivered=self.num_delivered,
            raw=self.raw,
            event=self.event,
        )

    def release(self) -> None:
        """Another worker has taken it over: neither done nor given back, only no longer kept alive from here."""
        self._holding.release(self._held)


class Pool:
    """Deliveries of one or several durable consumers: `async for delivery in pool`.

    It ends after `stop`, and raises `Unreachable` if the server ended the connection for good.
    """

    def __init__(
        self,
        connection: Connection,
        consumers: Sequence[ConsumerConfig],
        *,
        batch: int,
        places: int,
        max_deliver: int,
        check: Check,
        bury: Callable[[DeadLetter], Awaitable[None]],
    ) -> None:
        share = max(1, batch // len(consumers))
        self._batch = share * len(consumers)
        self._budget = Budget(self._batch, places)
        self._max_deliver = max_deliver
        self._check = check
        self._bury = bury
        self._loop = asyncio.get_running_loop()
        ack_wait_s = min(consumer.ack_wait_s for consumer in consumers)
        at_rest = share if len(consumers) == 1 else 1
        pulse = Pulse(ack_wait_s * SILENT)
        self._pullers = [
            Puller(connection, c, self._on_message, self._budget, share=share, at_rest=at_rest, pulse=pulse)
            for c in consumers
        ]
        self._holding = Holding(connection, ack_wait_s, pulse, self._on_settled)
        self._fetched: deque[Held] = deque()
        self._burials: set[asyncio.Task[None]] = set()
        self._waiting: asyncio.Future[None] | None = None
        self._in_turn = 0
        self._stopped = False
        self._connection = connection
        self._lost: BusError | None = None

    async def start(self) -> "Pool":
        """Creates the consumers and begins to fetch."""
        self._connection.on_lost_for_good.append(self._on_lost)
        for puller in self._pullers:
            await puller.start()
        self._refill()  # from all of them before the first message comes: each slot has somebody who asks
        return self

    @property
    def held(self) -> int:
        """Deliveries that are fetched or in progress here."""
        return len(self._holding)

    def __aiter__(self) -> "Pool":
        return self

    async def __anext__(self) -> Delivery:
        if self._in_turn == TURN:
            self._in_turn = 0
            await asyncio.sleep(0)
        while True:
            while self._fetched:
                held = self._fetched.popleft()
                self._budget.ahead += 1
                if not self._fetched or self._budget.ahead * 2 >= self._batch:
                    self._refill()
                opened = self._open(held)
                if isinstance(opened, Delivery):
                    self._in_turn += 1
                    return opened
                burial = self._loop.create_task(self._bury_and_ack(opened, held))
                self._burials.add(burial)
                burial.add_done_callback(self._burials.discard)
            if self._lost is not None:
                raise self._lost
            if self._stopped:
                raise StopAsyncIteration
            self._waiting = self._loop.create_future()
            await self._waiting

    def lend(self, places: int) -> None:
        """So many places of what is in progress are free for others meanwhile; a negative number takes them back.

        Where more is held then than there are places, what comes for the first time goes to another worker.
        """
        self._budget.places += places
        self._refill()

    async def stop(self) -> None:
        """No more pulls; returns what was fetched and not begun. What is in progress can still be settled."""
        self._stopped = True
        for puller in self._pullers:
            await puller.stop()
        while self._fetched:
            self._holding.settle(self._fetched.popleft(), nak(RETURN_DELAY_S))
        self._wake()

    async def close(self) -> None:
        """`stop`, and returns also what is in progress."""
        await self.stop()
        for burial in list(self._burials):
            burial.cancel()
        if self._burials:
            await asyncio.wait(self._burials)
        self._holding.close(RETURN_DELAY_S)
        if self._on_lost in self._connection.on_lost_for_good:
            self._connection.on_lost_for_good.remove(self._on_lost)

    def _on_lost(self, error: BusError) -> None:
        self._lost = error
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _on_message(self, subject: bytes, ack_subject: bytes, data: bytes, suspect: int) -> None:
        held = self._holding.take(subject, ack_subject, data, suspect)
        if held is None:
            self._budget.ahead += 1
            self._budget.places += 1
        elif self._budget.vacant < 0 and held.num_delivered == 1:  # once: what comes again and again is suspected
            self._budget.ahead += 1
            self._holding.settle(held, nak(RETURN_DELAY_S))
        else:
            self._fetched.append(held)
            self._wake()

    def _on_settled(self) -> None:
        self._budget.places += 1
        if self._budget.places <= self._batch:
            self._refill()

    def _refill(self) -> None:
        for puller in self._pullers:
            puller.refill()

    def _open(self, held: Held) -> Delivery | DeadLetter:
        name = held.subject.decode(errors="replace")
        event = event_or_letter(held.data, name, held.seq, held.num_delivered)
        if isinstance(event, DeadLetter):
            return event
        reason = self._check(event)
        if reason is None and held.num_delivered <= self._max_deliver:
            held.subject = b""  # the event has it; a worker may hold tens of thousands
            return Delivery(self._holding, held, event)
        told = f"event {event.id!r} is of type {event.type!r} and asks for its reply under {event.replyto!r}"
        if reason is None:
            reason, told = "exhausted", f"delivered {held.num_delivered - 1} times and never finished"
        return DeadLetter(
            reason=reason,
            message=told,
            subject=name,
            seq=held.seq,
            num_delivered=held.num_delivered,
            raw=held.data,
            event=None if reason == "subject_mismatch" else event,
        )

    async def _bury_and_ack(self, letter: DeadLetter, held: Held) -> None:
        try:
            await self._bury(letter)
        except BusError as error:
            _log.warning("burial_failed", subject=letter.subject, seq=letter.seq, error=str(error))
            self._holding.settle(held, nak(RETRY_DELAY_S))
        except Exception:  # noqa: BLE001
            _log.exception("on_dead_failed", subject=letter.subject, seq=letter.seq)
            self._holding.settle(held, nak(RETRY_DELAY_S))
        else:
            self._holding.settle(held, ACK)
