"""Keeping one durable consumer's messages coming: pull requests ahead of need, never a stall.

Called by `pool`, one `Puller` for each consumer that the pool reads. It asks for more before what it asked for has
come, follows what the server says of each request, and starts over when the server is silent, restarted or replaced.
It says of each message whether it may have been delivered before, hands it over raw and never acks.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Any, Final

import msgspec
import structlog

from bus.budget import Budget
from bus.connection import NO_RESPONDERS, Connection, field_of, status_of
from bus.errors import BusError
from bus.presence import be_present
from bus.pulse import Pulse
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


MAX_ACK_PENDING: Final = 100_000
"""Deliveries of a slot that all workers together may hold unfinished, unless something else is said."""


class ConsumerConfig(msgspec.Struct, frozen=True):
    """A durable consumer with explicit acks."""

    stream: str
    name: str
    filter: str
    ack_wait_s: float
    max_ack_pending: int


async def ensure_consumer(connection: Connection, config: ConsumerConfig) -> None:
    """Creates the consumer, or brings it to this configuration.

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
    await connection.api(f"CONSUMER.CREATE.{config.stream}.{config.name}.{config.filter}", body, dict[str, Any])


class Puller:
    """Pulls from one consumer while there is room for more."""

    def __init__(
        self,
        connection: Connection,
        config: ConsumerConfig,
        on_message: OnMessage,
        budget: Budget,
        *,
        share: int,
        at_rest: int,
        pulse: Pulse,
    ) -> None:
        """It asks for up to `share` at once; for `at_rest` while nothing comes, so that others have the places."""
        self._connection = connection
        self._config = config
        self._on_message = on_message
        self._budget = budget
        self._share = share
        self._pulse = pulse
        pulse.on_gap.append(self._doubt)
        self._loop = asyncio.get_running_loop()
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{config.stream}.{config.name}".encode()
        self._inbox = b""
        self._sid = 0
        self._requests = 0
        self._asked = 0
        """Messages that were asked for and have not come."""
        self._at_rest = at_rest
        self._flows = False
        """Something came for the newest request."""
        self._heard = 0.0
        self._stopped = False
        self.suspect = 0
        """Up to this sequence a first delivery may be a second one: a server that crashed, or a new leader, may have
        forgotten what it had delivered, or that there was a consumer."""
        self._gaps = 0
        """Standstills after which what was sent meanwhile has not all come. Until then all of it may be elsewhere."""
        self._catching_up: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._restoring: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Creates the consumer; `refill` begins to pull."""
        await self._prepare()
        inbox = self._connection.wire.new_inbox() + "."
        self._inbox = inbox.encode()
        self._sid = await self._connection.subscribe(inbox + "*", self._on_any)
        await be_present(self._connection, self._config.stream, self._config.name)
        self._connection.on_reconnect.append(self._restart)
        self._timer = self._loop.call_later(_HEARTBEAT_S, self._check)
        self._heard = self._loop.time()

    async def stop(self) -> None:
        """No more pulls; when it returns, all that the server had sent has been handed over."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for task in (self._restoring, self._catching_up):
            if task is not None:
                task.cancel()
        if self._restart in self._connection.on_reconnect:
            self._connection.on_reconnect.remove(self._restart)
            await self._connection.wire.unhandle(self._sid)

    def refill(self) -> None:
        """Asks for more if less than half of this consumer's share is on its way and there is room for as much.

        Where places are short it asks as soon as nothing is on its way: one that becomes free is used at once, and
        those that become free meanwhile are asked for together. One is asked for while there is a place at all: where
        more consumers were asked than there are places, what comes too late is given back.
        """
        share = self._share if self._flows else self._at_rest
        if self._stopped or self._restoring or not self._connection.up or self._asked * 2 > share:
            return
        budget = self._budget
        wanted = min(share - self._asked, budget.ahead, budget.places)
        if not self._asked and budget.places <= budget.ahead:
            wanted = max(wanted, min(1, budget.vacant))
        elif wanted * 2 < share:
            return
        if wanted <= 0:
            return
        self._asked += wanted
        budget.ask(wanted)
        self._requests += 1
        self._connection.send(
            self._next,
            b"%b%d" % (self._inbox, self._requests),
            b'{"batch":%d,"expires":%d,"idle_heartbeat":%d}' % (wanted, _EXPIRES_S * _NS, _HEARTBEAT_S * _NS),
        )

    def _on_any(self, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        self._pulse.beat()
        self._heard = self._loop.time()
        status = status_of(headers)
        if status == 0:
            self._flows = True
            if not self._asked:  # of a request that was given up
                self._asked = 1
                self._budget.ask(1)
            self._asked -= 1
            self._budget.asked -= 1
            self._on_message(subject, reply, data, sys.maxsize if self._gaps else self.suspect)
            self.refill()
        elif status != _HEARTBEAT:
            self._on_status(status, headers)

    def _on_status(self, status: int, headers: bytes | None) -> None:
        """A request ended: it expired, or the consumer moved, or is gone."""
        if status in (_CONFLICT, NO_RESPONDERS):
            self._restart(_PAUSE_S)
            return
        rest = field_of(headers, b"Nats-Pending-Messages")
        self._flows = False
        self._give_up(int(rest) if rest else self._asked)
        self.refill()

    def _give_up(self, count: int) -> None:
        """So many of the messages that were asked for will not come."""
        count = min(count, self._asked)
        self._asked -= count
        self._budget.ask(-count)

    def _restart(self, pause_s: float = 0.0) -> None:
        """The server, the connection or the consumer was away: make sure that it is there, then go on."""
        if not self._restoring and not self._stopped:
            self._give_up(self._asked)
            self._restoring = self._loop.create_task(self._restore(pause_s))

    async def _restore(self, pause_s: float) -> None:
        await asyncio.sleep(pause_s)
        try:
            await self._prepare()
        except BusError as error:
            _log.warning("consumer_unavailable", consumer=self._config.name, error=str(error))
            self._restoring = None
            self._loop.call_later(_PAUSE_S, self._restart)
        else:
            self._restoring = None
            self._start_over()

    async def _prepare(self) -> None:
        await ensure_consumer(self._connection, self._config)
        self.suspect = (await stream_info(self._connection, self._config.stream)).state.last_seq

    def _doubt(self) -> None:
        """This process stood still: what was sent to it before may have been delivered to another one since."""
        self._gaps += 1
        if self._gaps == 1 and not self._stopped:
            self._catching_up = self._loop.create_task(self._catch_up())

    async def _catch_up(self) -> None:
        """Returns when all that was sent before has come: the answer to a question that is asked now comes after it."""
        while gaps := self._gaps:
            try:
                await stream_info(self._connection, self._config.stream)
            except BusError as error:
                _log.warning("consumer_unavailable", consumer=self._config.name, error=str(error))
                await asyncio.sleep(_PAUSE_S)
            else:
                self._gaps = 0 if gaps == self._gaps else self._gaps

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
