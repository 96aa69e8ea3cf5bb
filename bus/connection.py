"""One connection to NATS: opening it, asking it things, and hearing that it went and came back.

Called by every other module of the bus, which takes a connected `Connection` and does not own it. It reconnects by
itself and for ever; what a loss means for pending work is each listener's own decision. It never publishes events.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec
import structlog
from nats.errors import Error as NatsError
from nats.errors import UnexpectedEOF

from bus.errors import ApiRefused, BusClosed, BusError, ServerUnfit, Unreachable
from bus.frames import Handler
from bus.wire import Wire

T = TypeVar("T")

MINIMUM_VERSION: Final = (2, 11)
NO_RESPONDERS: Final = 503

_CONNECT_S: Final = 5.0
_REQUEST_S: Final = 5.0
_PATIENCE_S: Final = 20.0
_PAUSE_S: Final = 0.1
_RECONNECT_PAUSE_S: Final = 0.1
_PENDING_BYTES: Final = 64 * 1024 * 1024

_log = structlog.get_logger("bus.connection")


class _Error(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Outcome(msgspec.Struct):
    error: _Error | None = None


class Message(msgspec.Struct):
    """One answer to a request."""

    data: bytes
    headers: bytes | None

    @property
    def status(self) -> int:
        """The inline status, 0 for an ordinary message."""
        return status_of(self.headers)


class Connection:
    """A live connection, which calls who listens when it breaks, when it is back, and when it never will be."""

    def __init__(self, wire: Wire, url: str) -> None:
        self.wire = wire
        self.url = redacted(url)
        self.up = True
        self.closed = False
        self.lost: Unreachable | None = None
        """Set when the server ended the connection for good."""
        self.on_disconnect: list[Callable[[], None]] = []
        """Who tells that the server is away; without any, the log does."""
        self.on_reconnect: list[Callable[[], None]] = []
        self.on_lost_for_good: list[Callable[[BusError], None]] = []
        self.failure = ""
        """What was wrong with the last attempts to connect, for a person."""
        self._begun = False
        self._told: set[str] = set()
        """What was said to be wrong with the server since it is away: each attempt hears the same."""
        self._asking: dict[bytes, tuple[Handler, asyncio.Future[None]]] = {}
        self._tokens = 0
        self._inbox = b""

    @property
    def max_payload(self) -> int:
        """Largest message that the server takes, in bytes."""
        return self.wire.max_payload

    async def close(self) -> None:
        """Closes the connection; what still waits gets `BusClosed`."""
        self.closed = True
        self.up = False
        await self.wire.close()

    async def inbox(self, handler: Handler) -> bytes:
        """Subscribes `handler` to a fresh prefix; returns it with its dot, to be followed by one token."""
        prefix = self.wire.new_inbox() + "."
        await self.subscribe(prefix + "*", handler)
        return prefix.encode()

    async def subscribe(self, subject: str, handler: Handler) -> int:
        """Subscribes `handler`; returns the ID for `wire.unhandle`."""
        self._check_open()
        return await self.wire.handle(subject, handler)

    def send(self, subject: bytes, reply: bytes, payload: bytes) -> None:
        """Sends one message without waiting for anything."""
        self.wire.send(b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(payload), payload))

    async def ask(
        self, subject: str, payload: bytes, on_answer: Callable[[Message], bool], timeout_s: float = _REQUEST_S
    ) -> None:
        """Sends a question; returns when `on_answer` said of a message that it was the last one.

        Raises `Unreachable` if that takes longer than `timeout_s`, or at once when the connection breaks.
        """
        self._check_open()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_message(_subject: bytes, _reply: bytes, data: bytes, headers: bytes | None) -> None:
            if not done.done() and on_answer(Message(data, headers)):
                done.set_result(None)

        self._tokens += 1
        token = b"%d" % self._tokens
        self._asking[token] = on_message, done
        try:
            self.send(subject.encode(), self._inbox + token, payload)
            async with asyncio.timeout(timeout_s):
                await done
        except TimeoutError:
            raise Unreachable(f"no answer from {self.url} to {subject} in {timeout_s:g} s") from None
        finally:
            del self._asking[token]

    async def ask_once(self, subject: str, payload: bytes, timeout_s: float = _REQUEST_S) -> Message:
        """One question, one answer, which may be the server's that nobody is there to answer; raises as `ask`."""
        answers: list[Message] = []

        def on_answer(message: Message) -> bool:
            answers.append(message)
            return True

        await self.ask(subject, payload, on_answer, timeout_s)
        return answers[0]

    async def request(self, subject: str, payload: bytes, timeout_s: float = _REQUEST_S) -> Message:
        """One question, one answer; raises `Unreachable` when none comes or nobody is there to answer."""
        answer = await self.ask_once(subject, payload, timeout_s)
        if answer.status == NO_RESPONDERS:
            raise Unreachable(f"nobody answers {subject} at {self.url}: does the log exist?")
        return answer

    async def api(self, verb: str, body: Any, answer: type[T], *, patience_s: float = _PATIENCE_S) -> T:
        """Asks JetStream; repeats while the server is away for at most `patience_s`; raises `ApiRefused`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience_s
        payload = b"" if body is None else msgspec.json.encode(body)
        while True:
            try:
                message = await self.request(f"$JS.API.{verb}", payload, min(_REQUEST_S, patience_s))
                error = msgspec.json.decode(message.data, type=_Outcome).error
                if error is None:
                    return msgspec.json.decode(message.data, type=answer)
                if error.code != NO_RESPONDERS or loop.time() > deadline:
                    raise ApiRefused(verb, error.code, error.err_code, error.description)
            except Unreachable:
                if self.lost is not None:
                    raise self.lost from None
                if loop.time() > deadline:
                    raise
            await asyncio.sleep(_PAUSE_S)

    def _check_open(self) -> None:
        if self.closed:
            raise BusClosed("the bus is closed")
        if self.lost is not None:
            raise self.lost

    async def _start(self) -> None:
        self._inbox = await self.inbox(self._route)
        self._begun = True

    def _route(self, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        asking = self._asking.get(subject[len(self._inbox) :])
        if asking is not None:
            asking[0](subject, reply, data, headers)

    async def _disconnected(self) -> None:
        self.up = False
        if not self.closed:
            if not self.on_disconnect:
                _log.warning("disconnected", url=self.url, hint="trying again until the server is back")
            for listener in list(self.on_disconnect):
                listener()
        for _, done in self._asking.values():
            if not done.done():  # its answer went to the connection that is gone
                done.set_exception(Unreachable(f"the connection to {self.url} broke"))

    async def _failed(self, error: Exception) -> None:
        nobody = isinstance(error, UnexpectedEOF | OSError)
        if not nobody or not self.failure:  # what a server says stands, also where it hangs up at the next attempt
            self.failure = str(error) or type(error).__name__
        if not self._begun or nobody:
            return  # told by `connect`, and by `_disconnected`
        if self.up:
            _log.warning("nats_error", url=self.url, error=self.failure)
        elif self.failure not in self._told:
            self._told.add(self.failure)
            _log.warning(
                "not_let_in", url=self.url, error=self.failure, hint=f"trying again; {_next_step(self.failure)}"
            )

    async def _reconnected(self) -> None:
        self.up = True
        self._told.clear()
        _log.info("reconnected", url=self.url)
        for listener in list(self.on_reconnect):
            listener()

    async def _lost(self) -> None:
        self.up = False
        if not self.closed:
            reason = self.wire.last_error
            self.lost = Unreachable(f"the server at {self.url} ended the connection: {reason}")
            _log.error("connection_lost", url=self.url, reason=str(reason))
            for listener in list(self.on_lost_for_good):
                listener(self.lost)


def _check_url(url: str) -> None:
    """Raises `Unreachable` for what can never be reached."""
    for one in url.split(","):
        try:
            parts = urlsplit(one if "://" in one else f"nats://{one}")
            good = bool(parts.hostname) and parts.scheme in {"nats", "tls", "ws", "wss"} and parts.port != 0
        except ValueError:
            good = False
        if not good:
            shown = one.rpartition("@")[2]
            raise Unreachable(f"{shown!r} is no URL of a NATS server: it looks like nats://HOST:PORT")


async def connect(url: str, *, name: str) -> Connection:
    """Connects within 5 s; raises `Unreachable` if nothing answers, `ServerUnfit` if it is too old."""
    _check_url(url)
    wire = Wire()
    connection = Connection(wire, url)
    try:
        async with asyncio.timeout(_CONNECT_S):
            await wire.connect(
                url.split(","),
                name=name,
                error_cb=connection._failed,  # noqa: SLF001
                disconnected_cb=connection._disconnected,  # noqa: SLF001
                reconnected_cb=connection._reconnected,  # noqa: SLF001
                closed_cb=connection._lost,  # noqa: SLF001
                max_reconnect_attempts=-1,
                reconnect_time_wait=_RECONNECT_PAUSE_S,  # type: ignore[arg-type]
                connect_timeout=2,
                ping_interval=10,
                pending_size=_PENDING_BYTES,
            )
            await connection._start()  # noqa: SLF001
    except (TimeoutError, NatsError, OSError, ValueError) as error:
        connection.closed = True
        await wire.close()
        why = connection.failure or str(error) or type(error).__name__
        raise Unreachable(f"no NATS server answers at {connection.url} ({why}): {_next_step(why)}") from None
    except BaseException:
        connection.closed = True
        await wire.close()
        raise
    if not wire.has_jetstream:
        await connection.close()
        raise ServerUnfit(f"JetStream is off at {connection.url}: start that nats-server with -js")
    version = wire.connected_server_version
    if (version.major, version.minor) < MINIMUM_VERSION:
        await connection.close()
        raise ServerUnfit(
            f"the server at {connection.url} is {version}, JetGym needs "
            f"{'.'.join(map(str, MINIMUM_VERSION))} or newer: upgrade it, or leave the URL out to use the embedded one"
        )
    return connection


def _next_step(failure: str) -> str:
    """What a person can do about a server that cannot be connected to."""
    if "authorization" in failure.lower() or "authentication" in failure.lower():
        return "its config says whom it lets in: give that user and password, or token, in the URL of the server"
    return "is it running, is the URL right?"


def status_of(headers: bytes | None) -> int:
    """The inline status of a header block (`NATS/1.0 503 …`), 0 if it has none."""
    if headers is None or headers[8:9] != b" " or not headers[9:12].isdigit():
        return 0
    return int(headers[9:12])


def field_of(headers: bytes | None, name: bytes) -> bytes:
    """The value of one field of a header block, empty if it is not there."""
    if headers is None:
        return b""
    start = headers.find(b"\r\n" + name + b":")
    if start < 0:
        return b""
    start += len(name) + 3
    return headers[start : headers.index(b"\r\n", start)].strip()


def redacted(url: str) -> str:
    """The URL without its user and password: fit for logs and errors."""
    return ",".join(_redacted(one) for one in url.split(","))


def _redacted(url: str) -> str:
    scheme, separator, rest = url.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
