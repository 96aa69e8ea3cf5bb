"""The receiving end of a pool: deliveries to one worker, each settled exactly once.

Called by worker frames and by the feed. It keeps what a worker holds alive at the server, buries what cannot be
processed as a dead letter and goes on, and gives back what was fetched and not begun. It never settles a delivery
that was handed out: that is the worker's, after all that the delivery caused is in the log.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from bus.connection import Connection
from bus.deadletter import DeadLetter, Reason
from bus.errors import BusError
from bus.pull import ConsumerConfig, Puller
from contracts.codec import decode
from contracts.errors import InvalidEvent, NewerVersion
from contracts.events import Event, Recorded

RETURN_DELAY_S: Final = 0.1
"""What was fetched and not begun is delivered to another worker after this."""
RETRY_DELAY_S: Final = 1.0

_ACK: Final = b"+ACK"
_V1_TOKENS: Final = 9

_log = structlog.get_logger("bus.pool")

Check = Callable[[Event, str], Reason | None]
"""Says what is wrong with an event that came under a subject."""


class Delivery:
    """One event in the hands of a worker, until `ack` or `nak`. Meanwhile the pool keeps it alive at the server."""

    __slots__ = ("_ack_subject", "_pool", "event", "num_delivered", "raw", "redelivered", "seq", "subject")

    def __init__(
        self,
        pool: "Pool",
        event: Event,
        *,
        subject: str,
        raw: bytes,
        ack_subject: bytes,
        num_delivered: int,
        seq: int,
        redelivered: bool,
    ) -> None:
        self._pool = pool
        self._ack_subject = ack_subject
        self.event = event
        self.subject = subject
        self.raw = raw
        self.num_delivered = num_delivered
        self.seq = seq
        self.redelivered = redelivered
        """It may have been delivered before: look in the log for what that left, before acting again. Not the same as
        `num_delivered > 1`, since a server that crashed forgets its last deliveries."""

    @property
    def recorded(self) -> Recorded:
        """The event as it stands in the log."""
        return Recorded(seq=self.seq, subject=self.subject, event=self.event, raw=self.raw)

    def ack(self) -> None:
        """Done: all that it caused is in the log. Settling twice does nothing."""
        self._pool._settle(self._ack_subject, _ACK)  # noqa: SLF001

    def nak(self, delay_s: float) -> None:
        """Not done: deliver it again, to anybody, after `delay_s` seconds, which must be more than 0."""
        if delay_s <= 0:
            raise ValueError("a negative ack always has a delay: without one the delivery would come back at once")
        self._pool._settle(self._ack_subject, _nak(delay_s))  # noqa: SLF001


class Pool:
    """Deliveries of one or several durable consumers: `async for delivery in pool`."""

    def __init__(
        self,
        connection: Connection,
        consumers: Sequence[ConsumerConfig],
        *,
        batch: int,
        max_deliver: int,
        check: Check,
        bury: Callable[[DeadLetter], Awaitable[None]],
    ) -> None:
        self._connection = connection
        self._batch = max(batch, len(consumers))
        self._max_deliver = max_deliver
        self._check = check
        self._bury = bury
        self._loop = asyncio.get_running_loop()
        self._ack_wait_s = min(consumer.ack_wait_s for consumer in consumers)
        share = self._batch // len(consumers)
        self._pullers = [Puller(connection, c, self._on_message, self._room, share) for c in consumers]
        self._fetched: deque[tuple[bytes, bytes, bytes, int]] = deque()
        self._held: dict[bytes, float] = {}
        """What the server waits for us to settle, and when it last heard that we are at it."""
        self._burials: set[asyncio.Task[None]] = set()
        self._waiting: asyncio.Future[None] | None = None
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> "Pool":
        """Creates the consumers and begins to fetch."""
        for puller in self._pullers:
            await puller.start()
        self._timer = self._loop.call_later(self._ack_wait_s / 6, self._keep_alive)
        return self

    @property
    def held(self) -> int:
        """Deliveries that are fetched or in progress here."""
        return len(self._held)

    def __aiter__(self) -> "Pool":
        return self

    async def __anext__(self) -> Delivery:
        while True:
            while self._fetched:
                message = self._fetched.popleft()
                if len(self._fetched) * 2 <= self._batch:
                    for puller in self._pullers:
                        puller.refill()
                opened = self._open(*message)
                if isinstance(opened, Delivery):
                    return opened
                burial = self._loop.create_task(self._bury_and_ack(opened, message[1]))
                self._burials.add(burial)
                burial.add_done_callback(self._burials.discard)
            if self._stopped:
                raise StopAsyncIteration
            self._waiting = self._loop.create_future()
            await self._waiting

    async def stop(self) -> None:
        """No more pulls; returns what was fetched and not begun. What is in progress can still be settled."""
        self._stopped = True
        for puller in self._pullers:
            await puller.stop()
        while self._fetched:
            self._settle(self._fetched.popleft()[1], _nak(RETURN_DELAY_S))
        self._wake()

    async def close(self) -> None:
        """`stop`, and no longer keeps alive what is in progress."""
        await self.stop()
        if self._timer is not None:
            self._timer.cancel()
        for burial in list(self._burials):
            burial.cancel()
        if self._burials:
            await asyncio.wait(self._burials)

    def _room(self) -> int:
        return self._batch - len(self._fetched)

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _on_message(self, subject: bytes, ack_subject: bytes, data: bytes, suspect: int) -> None:
        self._held[ack_subject] = self._loop.time()
        self._fetched.append((subject, ack_subject, data, suspect))
        self._wake()

    def _settle(self, ack_subject: bytes, how: bytes) -> None:
        if self._held.pop(ack_subject, None) is not None:
            self._connection.send(ack_subject, b"", how)

    def _keep_alive(self) -> None:
        """Sends one sign of life for each delivery that will need one before the next round."""
        self._timer = self._loop.call_later(self._ack_wait_s / 6, self._keep_alive)
        if not self._connection.up:
            return
        now = self._loop.time()
        due = [ack_subject for ack_subject, heard in self._held.items() if now - heard >= self._ack_wait_s / 3]
        for ack_subject in due:
            self._held[ack_subject] = now
            self._connection.send(ack_subject, b"", b"+WPI")

    def _open(self, subject: bytes, ack_subject: bytes, data: bytes, suspect: int) -> Delivery | DeadLetter:
        name = subject.decode(errors="replace")
        num_delivered, seq = _place(ack_subject)
        event: Event | None = None
        reason: Reason | None
        try:
            event = decode(data)
        except NewerVersion as error:
            reason, told = "newer_version", str(error)
        except InvalidEvent as error:
            reason, told = "undecodable", str(error)
        else:
            reason = self._check(event, name)
            told = f"event {event.id!r} of type {event.type!r} names subject {event.subject!r}"
            if reason is None and num_delivered <= self._max_deliver:
                return Delivery(
                    self,
                    event,
                    subject=name,
                    raw=data,
                    ack_subject=ack_subject,
                    num_delivered=num_delivered,
                    seq=seq,
                    redelivered=num_delivered > 1 or seq <= suspect,
                )
            if reason is None:
                reason, told = "exhausted", f"delivered {num_delivered - 1} times and never finished"
        return DeadLetter(
            reason=reason, message=told, subject=name, seq=seq, num_delivered=num_delivered, raw=data, event=event
        )

    async def _bury_and_ack(self, letter: DeadLetter, ack_subject: bytes) -> None:
        try:
            await self._bury(letter)
        except BusError as error:
            _log.warning("burial_failed", subject=letter.subject, seq=letter.seq, error=str(error))
            self._settle(ack_subject, _nak(RETRY_DELAY_S))
        except Exception:  # noqa: BLE001
            _log.exception("on_dead_failed", subject=letter.subject, seq=letter.seq)
            self._settle(ack_subject, _nak(RETRY_DELAY_S))
        else:
            self._settle(ack_subject, _ACK)


def _nak(delay_s: float) -> bytes:
    return b'-NAK {"delay": %d}' % int(delay_s * 1_000_000_000)


def _place(ack_subject: bytes) -> tuple[int, int]:
    """Number of deliveries and sequence, from an ack's subject in either of the server's forms."""
    tokens = ack_subject.split(b".")
    at = 4 if len(tokens) == _V1_TOKENS else 6
    return int(tokens[at]), int(tokens[at + 1])
