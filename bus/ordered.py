"""Reading a stream in order without a gap, live, for as long as one likes.

Called by `replies` and `scan`. It keeps an ephemeral push consumer at the server and counts: the consumer numbers
what it sends, so a missing number, a heartbeat that knows of more than came, silence, or a reconnect means that
something was lost, and the consumer is made anew after the last message that was handed over. Each message is handed
over once, in the stream's order. It never acks.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import structlog

from bus.connection import Connection, field_of, status_of
from bus.errors import BusError, Unreachable
from bus.topology import stream_info

_NS: Final = 1_000_000_000
_HEARTBEAT_S: Final = 2
_SILENCE_S: Final = 3.0 * _HEARTBEAT_S
_INACTIVE_S: Final = 30
_REOPEN_S: Final = 30.0
_PAUSE_S: Final = 0.1
_PAUSE_LIMIT_S: Final = 2.0
_HEARTBEAT: Final = 100
_V1_TOKENS: Final = 9

_log = structlog.get_logger("bus.ordered")

OnMessage = Callable[[int, bytes, bytes, int], None]
"""Called with sequence, subject, payload and how many messages are behind this one. It must not block."""


class OrderedReader:
    """One stream, some filters, from one sequence on."""

    def __init__(
        self,
        connection: Connection,
        stream: str,
        filters: Sequence[str],
        on_message: OnMessage,
        *,
        start: int = 1,
        sizes: bool = False,
    ) -> None:
        """With `sizes` each message comes with the number of its payload's bytes, in decimal, instead of these."""
        self._connection = connection
        self._stream = stream
        self.filters = list(filters)
        self._on_message = on_message
        self._sizes = sizes
        self.next = start
        """Sequence from which on messages have yet to be handed over."""
        self._loop = asyncio.get_running_loop()
        self._sid = 0
        self._name = ""
        self._count = 0
        self._heard = 0.0
        self._broken = asyncio.Event()
        self._ready = asyncio.Event()
        self._generation = 0
        self._keeper: asyncio.Task[None] | None = None
        self._flow_paused = False
        self._flow_reply = b""
        self.pending = 0
        """Messages that waited in the stream when the consumer was made."""

    async def start(self) -> None:
        """Returns when the consumer exists: what is stored from now on will come."""
        await self._open()
        self._connection.on_reconnect.append(self.renew)
        self._keeper = self._loop.create_task(self._keep())

    async def stop(self) -> None:
        """Nothing comes any more when this returns."""
        self._generation += 1
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
            self._keeper = None
            self._connection.on_reconnect.remove(self.renew)
            await self._discard(self._sid, self._name)

    def renew(self) -> None:
        """Makes the consumer anew, after the last message that was handed over."""
        self._generation += 1
        self._ready.clear()
        self._broken.set()

    async def reopen(self, filters: Sequence[str], start: int) -> None:
        """Goes on with other filters and from `start` on; returns when the new consumer exists."""
        self.filters, self.next = list(filters), start
        self.renew()
        try:
            async with asyncio.timeout(_REOPEN_S):
                await self._ready.wait()
        except TimeoutError:
            raise Unreachable(f"stream {self._stream} could not be subscribed within {_REOPEN_S:g} s") from None

    def pause(self) -> None:
        """The server sends at most some megabytes more until `resume`."""
        self._flow_paused = True

    def resume(self) -> None:
        """Goes on after `pause`."""
        self._flow_paused = False
        if self._flow_reply:
            self._connection.send(self._flow_reply, b"", b"")
            self._flow_reply = b""

    async def _keep(self) -> None:
        pause = _PAUSE_S
        while self._connection.lost is None:
            try:
                async with asyncio.timeout(_HEARTBEAT_S):
                    await self._broken.wait()
            except TimeoutError:
                if not self._connection.up or self._loop.time() - self._heard < _SILENCE_S:
                    continue
                _log.warning("reader_silent", stream=self._stream, filters=self.filters)
            self._generation += 1
            try:
                old = self._sid, self._name
                self._sid = 0
                await self._discard(*old)
                await self._open()
                pause = _PAUSE_S
            except BusError as error:
                _log.warning("reader_waits", stream=self._stream, error=str(error))
                self._broken.set()
                await asyncio.sleep(pause)
                pause = min(_PAUSE_LIMIT_S, pause * 2)

    async def _open(self) -> None:
        self._broken.clear()
        self._generation += 1
        generation = self._generation
        self._count = 0
        self._flow_reply = b""
        info = await stream_info(self._connection, self._stream)
        last = info.state.last_seq
        if last + 1 < self.next and info.config.get("num_replicas") == 1:  # else a replica that only lags
            # The server came back with less than it had shown: a power cut between two syncs.
            _log.error("log_truncated", stream=self._stream, had=self.next - 1, has=last)
            self.next = last + 1
        inbox = self._connection.wire.new_inbox()
        self._name = inbox.replace("_INBOX.", "r")

        def on_any(subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
            if generation == self._generation:
                self._on_any(subject, reply, data, headers)

        self._sid = await self._connection.subscribe(inbox, on_any)
        body = {
            "stream_name": self._stream,
            "config": {
                "name": self._name,
                "deliver_subject": inbox,
                "deliver_policy": "by_start_sequence",
                "opt_start_seq": self.next,
                "filter_subjects": self.filters,
                "headers_only": self._sizes,
                "ack_policy": "none",
                "replay_policy": "instant",
                "max_deliver": 1,
                "flow_control": True,
                "idle_heartbeat": _HEARTBEAT_S * _NS,
                "inactive_threshold": _INACTIVE_S * _NS,
                "mem_storage": True,
                "num_replicas": 1,
            },
        }
        self._heard = self._loop.time()
        made = await self._connection.api(f"CONSUMER.CREATE.{self._stream}.{self._name}", body, _Made)
        self.pending = made.num_pending
        if generation == self._generation:
            self._ready.set()

    async def _discard(self, sid: int, name: str) -> None:
        if sid:
            await self._connection.wire.unhandle(sid)
        if name and self._connection.up:
            try:
                verb = f"CONSUMER.DELETE.{self._stream}.{name}"
                await self._connection.api(verb, None, dict[str, Any], patience_s=1.0)
            except BusError as error:
                _log.debug("consumer_left", stream=self._stream, name=name, error=str(error))

    def _on_any(self, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        self._heard = self._loop.time()
        if headers is not None and (status := status_of(headers)):
            self._on_status(status, reply, headers)
            return
        tokens = reply.split(b".")
        at = 5 if len(tokens) == _V1_TOKENS else 7
        if int(tokens[at + 1]) != self._count + 1:
            self.renew()
            return
        self._count += 1
        seq = int(tokens[at])
        if seq >= self.next:
            self.next = seq + 1
            if self._sizes:
                data = field_of(headers, b"Nats-Msg-Size")
            self._on_message(seq, subject, data, int(tokens[at + 3]))

    def _on_status(self, status: int, reply: bytes, headers: bytes) -> None:
        if status != _HEARTBEAT:
            self.renew()
            return
        flow = reply or field_of(headers, b"Nats-Consumer-Stalled")
        if flow and self._flow_paused:
            self._flow_reply = flow
        elif flow:
            self._connection.send(flow, b"", b"")
        last = field_of(headers, b"Nats-Last-Consumer")
        if last and int(last) > self._count:
            self.renew()


class _Made(msgspec.Struct):
    num_pending: int = 0
