"""Getting an event into the log exactly once, whatever happens on the way.

Called by `Bus.publish` and by whoever stores blobs and dead letters. Every message carries expected sequence 0, so
the server stores at most one per subject for ever, and sending it again can do no harm. From that follows the whole
module: an ack that does not come, a disconnect and a restarted server are answered by sending again; a refusal is
answered by reading who holds the subject. What is not acked is never reported as stored. The number and the bytes in
flight are bounded, since the server drops what is over its own queue without a word.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from bus.connection import NO_RESPONDERS, Connection, status_of
from bus.direct import Stored, last
from bus.errors import ApiRefused, BusClosed, BusError, PublishRefused, Unreachable
from bus.full import FullStreams

MAX_IN_FLIGHT: Final = 4_000
MAX_BYTES_IN_FLIGHT: Final = 64 * 1024 * 1024

Judge = Callable[[bytes, Stored], None]
"""Given our bytes and what holds the subject, returns if that is ours, else raises the conflict."""

_HEADERS: Final = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 0\r\n\r\n"
_HELD: Final = 10071
"""Wrong last sequence: the subject holds a message."""
_UNSURE: Final = (10158, 10163, 10164)
"""Clustered streams: another publish to the subject is on its way. Back off and read again."""
_STORE_FAILED: Final = 10077
_NO_RESOURCES: Final = (10023, 10047)
_UNAVAILABLE: Final = (429, 503)

_BACKOFF_S: Final = 0.05
_BACKOFF_LIMIT_S: Final = 2.0
_CHECK_S: Final = 1.0
_QUIET_S: Final = 5.0
"""Sent again when no ack at all came for a while; while acks flow, the server is only slow."""
_PATIENT_S: Final = 30.0


class _Error(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Ack(msgspec.Struct):
    seq: int = 0
    error: _Error | None = None


_DECODER: Final = msgspec.json.Decoder(_Ack)


class _Pending:
    __slots__ = ("attempts", "created", "future", "judge", "on_its_way", "raw", "sent", "stream", "subject", "token")

    def __init__(self, token: bytes, subject: bytes, stream: str, raw: bytes, judge: Judge) -> None:
        loop = asyncio.get_running_loop()
        self.token, self.subject, self.stream, self.raw, self.judge = token, subject, stream, raw, judge
        self.created = self.sent = loop.time()
        self.future: asyncio.Future[int] = loop.create_future()
        self.attempts = 0
        self.on_its_way = True
        """Sent and unanswered; otherwise it waits for room, for a retry, or for a look at who holds its subject."""


class Publisher:
    """All publishes of one connection."""

    def __init__(self, connection: Connection, *, outage_s: float) -> None:
        self._connection = connection
        self._outage_s = outage_s
        self._loop = asyncio.get_running_loop()
        self._inbox = b""
        self._skip = 0
        self._tokens = 0
        self._pending: dict[bytes, _Pending] = {}
        self._bytes = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._full: FullStreams[_Pending] = FullStreams(self._send)
        self._looks: set[asyncio.Task[None]] = set()
        self._last_ack = 0.0
        self._ended: BusError | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Subscribes the acks. To be called once, before `post`."""
        self._inbox = await self._connection.inbox(self._on_ack)
        self._skip = len(self._inbox)
        self._connection.on_reconnect.append(self._on_reconnect)
        self._connection.on_lost_for_good.append(self._end)
        self._timer = self._loop.call_later(_CHECK_S, self._check)

    @property
    def in_flight(self) -> int:
        """Publishes without an answer."""
        return len(self._pending)

    @property
    def log_full(self) -> bool:
        """True while publishes wait because the server says that the log is full."""
        return bool(self._full)

    async def post(self, subject: bytes, stream: str, raw: bytes, judge: Judge) -> asyncio.Future[int]:
        """Sends when there is room in flight; the future gets the sequence, or the error that settled it."""
        if not self.has_room:
            await self._room()
        return self.post_at_once(subject, stream, raw, judge)

    def post_at_once(self, subject: bytes, stream: str, raw: bytes, judge: Judge) -> asyncio.Future[int]:
        """`post`, where `has_room` says that there is."""
        if self._ended is not None:
            raise self._ended
        self._tokens += 1
        pending = _Pending(b"%d" % self._tokens, subject, stream, raw, judge)
        self._pending[pending.token] = pending
        self._bytes += len(raw)
        self._send(pending)
        return pending.future

    async def close(self, timeout_s: float) -> None:
        """Waits at most `timeout_s` for what is in flight; the rest fails with `BusClosed`."""
        futures = [pending.future for pending in self._pending.values()]
        if futures and self._connection.up and not self._full:
            await asyncio.wait(futures, timeout=timeout_s)
        self._end(BusClosed("the bus was closed before the log confirmed this event"))
        if self._looks:
            await asyncio.wait(self._looks)

    # Room in flight

    @property
    def has_room(self) -> bool:
        """Whether nothing has to wait for room in flight."""
        return not self._waiters and self._has_room()

    def _has_room(self) -> bool:
        return len(self._pending) < MAX_IN_FLIGHT and self._bytes < MAX_BYTES_IN_FLIGHT

    async def room(self) -> None:
        """Waits until there is room in flight, and takes none of it."""
        if not self.has_room:
            await self._room()
            self._wake()

    async def _room(self) -> None:
        while self._ended is None:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if not waiter.cancelled():
                    self._wake()
                raise
            if self._has_room():
                return

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _settled(self, pending: _Pending) -> asyncio.Future[int] | None:
        """Takes it out of flight; returns its future if somebody still waits for it."""
        if self._pending.pop(pending.token, None) is None:
            return None
        self._bytes -= len(pending.raw)
        if self._waiters and self._has_room():
            self._wake()
        return None if pending.future.done() else pending.future

    def _succeed(self, pending: _Pending, seq: int) -> None:
        if (future := self._settled(pending)) is not None:
            future.set_result(seq)

    def _fail(self, pending: _Pending, error: BusError) -> None:
        if (future := self._settled(pending)) is not None:
            future.set_exception(error)

    def _end(self, error: BusError) -> None:
        """No further publishes: everything pending fails."""
        self._ended = self._ended or error
        if self._timer is not None:
            self._timer.cancel()
        self._full.clear()
        for task in self._looks:
            task.cancel()
        for pending in list(self._pending.values()):
            self._fail(pending, self._ended)
        while self._waiters:
            self._wake()

    # Answers

    def _on_ack(self, subject: bytes, _reply: bytes, data: bytes, headers: bytes | None) -> None:
        pending = self._pending.get(subject[self._skip :])
        if pending is None or not pending.on_its_way:
            return
        self._last_ack = self._loop.time()
        if headers is not None and status_of(headers) == NO_RESPONDERS:
            self._send_later(pending, f"no stream takes {pending.subject.decode()}: does the log exist (ensure_log)?")
            return
        ack = _DECODER.decode(data)
        if ack.error is not None:
            self._refused(pending, ack.error)
            return
        self._succeed(pending, ack.seq)
        if self._full:
            self._full.stored(pending.stream)

    def _refused(self, pending: _Pending, error: _Error) -> None:
        code, said = error.err_code, error.description
        if code == _HELD:
            self._look(pending, 0.0)
        elif code in _UNSURE:
            self._look(pending, self._backoff(pending))
        elif (code == _STORE_FAILED and "maximum" in said) or code in _NO_RESOURCES:
            pending.on_its_way = False
            pending.created = self._loop.time()  # waiting for room is no outage
            self._full.refused(pending.stream, pending, said)
        elif error.code in _UNAVAILABLE or code == _STORE_FAILED:
            self._send_later(pending, said)
        else:
            told = ApiRefused(f"publish to {pending.subject.decode()}", error.code, code, said)
            self._fail(pending, PublishRefused(str(told)))

    def _look(self, pending: _Pending, after_s: float) -> None:
        pending.on_its_way = False
        task = self._loop.create_task(self._read_holder(pending, after_s))
        self._looks.add(task)
        task.add_done_callback(self._looks.discard)

    async def _read_holder(self, pending: _Pending, after_s: float) -> None:
        """The subject is taken, or may be: whose is it?"""
        await asyncio.sleep(after_s)
        try:
            stored = await last(self._connection, pending.stream, pending.subject.decode())
            if stored is None:  # refused for a publish that is not there yet, or this replica lags
                self._send_later(pending, "refused for a message that cannot be read")
                return
            pending.judge(pending.raw, stored)
        except Unreachable as error:
            self._send_later(pending, str(error))
        except BusError as error:
            self._fail(pending, error)
        else:
            self._succeed(pending, stored.seq)

    # Sending, and sending again

    def _send(self, pending: _Pending) -> None:
        if pending.token not in self._pending:
            return
        pending.on_its_way = True
        pending.sent = self._loop.time()
        if self._connection.up:  # otherwise on the reconnect
            size, raw = len(_HEADERS), pending.raw
            self._connection.wire.send(
                b"HPUB %b %b%b %d %d\r\n%b%b\r\n"
                % (pending.subject, self._inbox, pending.token, size, size + len(raw), _HEADERS, raw)
            )

    def _backoff(self, pending: _Pending) -> float:
        pending.attempts += 1
        return min(_BACKOFF_LIMIT_S, _BACKOFF_S * 2.0 ** min(pending.attempts, 10))

    def _send_later(self, pending: _Pending, why: str) -> None:
        if self._loop.time() - pending.created > self._outage_s:
            self._fail(pending, Unreachable(f"not stored within {self._outage_s:g} s: {why}"))
            return
        pending.on_its_way = False
        self._loop.call_later(self._backoff(pending), self._send, pending)

    def _on_reconnect(self) -> None:
        for pending in list(self._pending.values()):
            if pending.on_its_way:
                self._send(pending)

    def _check(self) -> None:
        """Once a second: what was lost on the way is sent again, what waited too long fails."""
        self._timer = self._loop.call_later(_CHECK_S, self._check)
        now, up = self._loop.time(), self._connection.up
        wait = _QUIET_S if now - self._last_ack > _QUIET_S / 2 else _PATIENT_S
        for pending in list(self._pending.values()):
            if not pending.on_its_way:
                continue
            if now - pending.created > self._outage_s and now - self._last_ack > _QUIET_S:
                why = "no answer" if up else f"{self._connection.url} is away"
                self._fail(pending, Unreachable(f"not stored within {self._outage_s:g} s: {why}"))
            elif up and now - pending.sent > wait:
                self._send(pending)
