"""Keeping one durable consumer's messages coming: pull requests ahead of need, never a stall.

Called by `pool`, one `Puller` for each consumer that the pool reads. It asks for more before what it asked for has
come, follows what the server says of each request, and starts over when the server is silent, restarted or replaced.
It hands over raw messages and never acks.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from bus.connection import NO_RESPONDERS, Connection, field_of, status_of
from bus.errors import BusError
from bus.topology import stream_info

_NS: Final = 1_000_000_000
_EXPIRES_S: Final = 30
_HEARTBEAT_S: Final = 5
_SILENCE_S: Final = 2.5 * _HEARTBEAT_S
_PAUSE_S: Final = 0.25
_HEARTBEAT: Final = 100
_CONFLICT: Final = 409
_MAX_WAITING: Final = 8_192
"""Pull requests that wait at one consumer, of all workers together."""

_log = structlog.get_logger("bus.pool")

OnMessage = Callable[[bytes, bytes, bytes, int], None]
"""Called with subject, ack subject, payload, and the sequence up to which a first delivery may be a second one."""


class ConsumerConfig(msgspec.Struct, frozen=True):
    """A durable consumer with explicit acks."""

    stream: str
    name: str
    filter: str
    ack_wait_s: float
    max_ack_pending: int


class _Progress(msgspec.Struct):
    consumer_seq: int = 0


class _Made(msgspec.Struct):
    delivered: _Progress


async def ensure_consumer(connection: Connection, config: ConsumerConfig) -> bool:
    """Creates the consumer, or brings it to this configuration; returns whether it has delivered anything before.

    The server never gives up on a delivery: exhausted ones are the pool's to handle, since a consumer that reached
    its `max_deliver` goes on without telling anybody.
    """
    body = {
        "stream_name": config.stream,
        "config": {
            "durable_name": config.name,
            "filter_subject": config.filter,
            "ack_policy": "explicit",
            "deliver_policy": "all",
            "replay_policy": "instant",
            "ack_wait": int(config.ack_wait_s * _NS),
            "max_deliver": -1,
            "max_ack_pending": config.max_ack_pending,
            "max_waiting": _MAX_WAITING,
        },
    }
    made = await connection.api(f"CONSUMER.CREATE.{config.stream}.{config.name}.{config.filter}", body, _Made)
    return made.delivered.consumer_seq > 0


class Budget:
    """How many more messages a pool may ask for: what is asked for or fetched and not begun counts against it."""

    __slots__ = ("free",)

    def __init__(self, size: int) -> None:
        self.free = size


class Puller:
    """Pulls from one consumer while there is room for more."""

    def __init__(
        self, connection: Connection, config: ConsumerConfig, on_message: OnMessage, budget: Budget, share: int
    ) -> None:
        self._connection = connection
        self._config = config
        self._on_message = on_message
        self._budget = budget
        self._share = share
        self._loop = asyncio.get_running_loop()
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{config.stream}.{config.name}".encode()
        self._inbox = b""
        self._sid = 0
        self._requests = 0
        self._asked = 0
        """Messages that were asked for and have not come."""
        self._heard = 0.0
        self._stopped = False
        self.suspect = 0
        """Up to this sequence a first delivery may be a second one: a server that crashed, or a new leader, may have
        forgotten what it had delivered."""
        self._timer: asyncio.TimerHandle | None = None
        self._restoring: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Creates the consumer and begins to pull."""
        await self._prepare(after_loss=False)
        inbox = self._connection.wire.new_inbox() + "."
        self._inbox = inbox.encode()
        self._sid = await self._connection.subscribe(inbox + "*", self._on_any)
        self._connection.on_reconnect.append(self._restart)
        self._timer = self._loop.call_later(_HEARTBEAT_S, self._check)
        self._start_over()

    async def stop(self) -> None:
        """No more pulls; when it returns, all that the server had sent has been handed over."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._restoring is not None:
            self._restoring.cancel()
        if self._restart in self._connection.on_reconnect:
            self._connection.on_reconnect.remove(self._restart)
            await self._connection.wire.unhandle(self._sid)

    def refill(self) -> None:
        """Asks for more if less than half of this consumer's share is on its way and there is room for as much."""
        if self._stopped or self._restoring or not self._connection.up or self._asked * 2 > self._share:
            return
        wanted = min(self._share - self._asked, self._budget.free)
        if wanted <= 0 or wanted * 2 < self._share:
            return
        self._asked += wanted
        self._budget.free -= wanted
        self._requests += 1
        self._connection.send(
            self._next,
            b"%b%d" % (self._inbox, self._requests),
            b'{"batch":%d,"expires":%d,"idle_heartbeat":%d}' % (wanted, _EXPIRES_S * _NS, _HEARTBEAT_S * _NS),
        )

    def _on_any(self, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        self._heard = self._loop.time()
        status = status_of(headers)
        if status == 0:
            if self._asked:
                self._asked -= 1
            else:  # of a request that was given up
                self._budget.free -= 1
            self._on_message(subject, reply, data, self.suspect)
            self.refill()
        elif status != _HEARTBEAT:
            self._on_status(status, headers)

    def _on_status(self, status: int, headers: bytes | None) -> None:
        """A request ended: it expired, or the consumer moved, or is gone."""
        if status in (_CONFLICT, NO_RESPONDERS):
            self._restart(_PAUSE_S)
            return
        rest = field_of(headers, b"Nats-Pending-Messages")
        self._give_up(int(rest) if rest else self._asked)
        self.refill()

    def _give_up(self, count: int) -> None:
        """So many of the messages that were asked for will not come."""
        count = min(count, self._asked)
        self._asked -= count
        self._budget.free += count

    def _restart(self, pause_s: float = 0.0) -> None:
        """The server, the connection or the consumer was away: make sure that it is there, then go on."""
        if not self._restoring and not self._stopped:
            self._give_up(self._asked)
            self._restoring = self._loop.create_task(self._restore(pause_s))

    async def _restore(self, pause_s: float) -> None:
        await asyncio.sleep(pause_s)
        try:
            await self._prepare(after_loss=True)
        except BusError as error:
            _log.warning("consumer_unavailable", consumer=self._config.name, error=str(error))
            self._restoring = None
            self._loop.call_later(_PAUSE_S, self._restart)
        else:
            self._restoring = None
            self._start_over()

    async def _prepare(self, *, after_loss: bool) -> None:
        used = await ensure_consumer(self._connection, self._config)
        if used or after_loss:
            self.suspect = (await stream_info(self._connection, self._config.stream)).state.last_seq

    def _start_over(self) -> None:
        self._give_up(self._asked)
        self._heard = self._loop.time()
        self.refill()

    def _check(self) -> None:
        self._timer = self._loop.call_later(_HEARTBEAT_S, self._check)
        if self._connection.up and self._asked and self._loop.time() - self._heard > _SILENCE_S:
            _log.warning("pull_silent", consumer=self._config.name)
            self._start_over()
        self.refill()
