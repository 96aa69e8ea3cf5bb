"""The NATS client with a direct way in and out: the one module that touches what nats-py keeps private.

Called by `bus.connection`. nats-py's own paths cost a queue, a task switch and a future a message, which is more than
the rest of an event's way together. This subclass hands a message of a handled subscription to a plain function
inside the read loop (`bus.frames`), and gathers outgoing commands until the end of the loop's turn. It never blocks,
never decodes payloads, and leaves connecting, reconnecting, resubscribing and all other subscriptions to nats-py.

`tests/unit/bus/test_wire.py` pins the private names used here against the installed nats-py.
"""

import asyncio
from typing import Any, Final

import structlog
from nats.aio.client import Client
from nats.aio.transport import TcpTransport
from nats.errors import Error as NatsError
from nats.errors import UnexpectedEOF

from bus.frames import Frames, Handler

PRIVATE_NAMES: Final = (
    "_connect_to_server",
    "_flush_queue",
    "_pending",
    "_pending_data_size",
    "_pongs",
    "_process_connect_init",
    "_process_op_err",
    "_process_pong",
    "_ps",
    "_read_loop",
    "_reconnection_task",
    "_server_info",
    "_sid",
    "_subs",
    "_transport",
)

_FLUSH_S: Final = 5
GATHER_S: Final = 0.02
"""Seconds after a write in which more is gathered for the next one, at most."""
_EACH_S: Final = 0.001
"""Of that for each command in the write: with fewer than a thousand a second, each soon leaves at once."""

_log = structlog.get_logger("bus.wire")


class Wire(Client):
    """A nats-py client whose hot paths are synchronous."""

    def __init__(self) -> None:
        super().__init__()
        self._handlers: dict[int, Handler] = {}
        self._ps = Frames(self, self._handlers)
        self._flush_due = False
        self._gathers_until = 0.0
        self._loop = asyncio.get_running_loop()

    @property
    def has_jetstream(self) -> bool:
        """Whether the server says that JetStream is on."""
        return bool(self._server_info.get("jetstream"))

    async def handle(self, subject: str, handler: Handler) -> int:
        """Subscribes `handler` to `subject`; returns the ID for `unhandle`. It survives reconnects."""
        sid = self._sid + 1
        self._handlers[sid] = handler  # before the first message can arrive
        await self.subscribe(subject)
        return sid

    async def unhandle(self, sid: int) -> None:
        """Ends a subscription; when this returns the handler has seen all that was sent to it."""
        subscription = self._subs.get(sid)
        try:
            if subscription is not None and not self.is_closed:
                await subscription.unsubscribe()
                if self.is_connected:
                    await self.flush(_FLUSH_S)
        except NatsError as error:
            _log.debug("unsubscribed_unconfirmed", error=str(error))
        self._handlers.pop(sid, None)

    async def close(self) -> None:
        """Closes; what was sent before is written out, if the connection is up."""
        self._flush_now()
        self._pending, self._pending_data_size = [], 0  # nats-py would raise where it cannot write the rest
        await super().close()

    def send(self, command: bytes) -> None:
        """Queues one protocol command; all of a loop turn leave together, and what comes soon after many, too."""
        self._pending.append(command)
        self._pending_data_size += len(command)
        if not self._flush_due:
            self._flush_due = True
            rest_s = self._gathers_until - self._loop.time()
            if rest_s > 0:
                self._loop.call_later(rest_s, self._flush_now)
            else:
                self._loop.call_soon(self._flush_now)

    def _flush_now(self) -> None:
        self._flush_due = False
        self._gathers_until = self._loop.time() + min(GATHER_S, len(self._pending) * _EACH_S)
        if not self.is_connected or not self._pending or not self._transport:
            return  # nats-py writes what is pending after its reconnect
        try:
            self._transport.write(b"".join(self._pending))
        except (OSError, RuntimeError) as error:  # the connection broke, and nats-py has not seen it yet
            _log.debug("write_failed", error=str(error))
            return
        self._pending, self._pending_data_size = [], 0

    async def _connect_to_server(self, s: Any) -> None:
        if self._transport:  # an attempt to reconnect that failed half-way: nats-py would leave it open
            self._transport.close()  # type: ignore[no-untyped-call]
        try:
            await super()._connect_to_server(s)
        finally:
            self._go_on_if_wanted()

    async def _process_connect_init(self) -> None:
        try:
            await super()._process_connect_init()
        finally:
            self._go_on_if_wanted()

    def _go_on_if_wanted(self) -> None:
        """Ends attempts to reconnect that were cancelled, or whose client was closed.

        nats-py waits with `asyncio.wait_for`, which loses a cancellation that meets its result: it would never end.
        """
        task = asyncio.current_task()
        if task is not None and task is self._reconnection_task and (self.is_closed or task.cancelling()):
            if self._transport:
                self._transport.close()  # type: ignore[no-untyped-call]
            raise asyncio.CancelledError

    async def _read_loop(self) -> None:
        await super()._read_loop()
        if self.is_connected:  # ended by an exception: nats-py would stay connected and hear nothing any more
            await self._process_op_err(UnexpectedEOF())

    async def _process_op_err(self, e: Exception) -> None:
        """Breaks the connection before nats-py closes it, which would wait until all is sent to who may not read."""
        writer = self._transport._io_writer if isinstance(self._transport, TcpTransport) else None  # noqa: SLF001
        if writer is not None and not (self.is_closed or self.is_reconnecting):
            writer.transport.abort()
        await super()._process_op_err(e)

    async def _process_pong(self) -> None:
        if self._pongs and self._pongs[0].done():  # who waited has given up; nats-py would raise in its read loop
            self._pongs[0] = self._loop.create_future()
        await super()._process_pong()
