"""The NATS protocol's way in: bytes from the server to handlers, without a task switch a message.

Called by nats-py's read loop through `bus.wire`, in place of nats-py's own parser, which finds each message with
several regular expressions and starts a coroutine for it. Here a message of a handled subscription goes straight to
its handler. All that is no message, and messages of other subscriptions, stay nats-py's. It never sends anything.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

import structlog
from nats.errors import ProtocolError
from nats.protocol.parser import Parser

Handler = Callable[[bytes, bytes, bytes, bytes | None], None]
"""Called with subject, reply subject, payload and raw header block. It must not block."""

TURN_S: Final = 0.004
"""Seconds after which the rest of the process gets its turn, even if more messages have arrived."""

_MESSAGES: Final = b"MH"
"""What the first line of a message begins with: MSG or HMSG."""
_END: Final = b"\r\n"

_log = structlog.get_logger("bus.wire")


class Frames(Parser):
    """The parser of one client. nats-py calls `parse` with what came, and `reset` when a new connection begins."""

    def __init__(self, client: object, handlers: Mapping[int, Handler]) -> None:
        super().__init__(client)
        self._handlers = handlers
        self._loop = asyncio.get_running_loop()
        self._turn_ends: float | None = None

    def reset(self) -> None:
        """Forgets what has come of a message that is not whole."""
        super().reset()
        self._parts: list[bytes] = []
        self._missing = 0

    async def parse(self, data: bytes = b"") -> None:
        """Handles each message that is whole with these bytes; raises `ProtocolError`."""
        data, parts = self._joined(data), self._parts
        at, size = 0, len(data)
        while at < size:
            line_ends = data.find(_END, at)
            if line_ends < 0:
                self._missing = 1
                break
            begins = line_ends + 2
            if data[at] not in _MESSAGES:
                await super().parse(data[at:begins])
                at = begins
            else:
                words = data[at:line_ends].split()
                sid, headed, length = _numbers(words)
                ends = begins + length
                if ends + 2 > size:
                    self._missing = ends + 2 - size
                    break
                at = ends + 2
                reply = words[3] if len(words) == (5 if headed is None else 6) else b""
                headers = None if headed is None else data[begins : begins + headed]
                payload = data[begins + (headed or 0) : ends]
                handler = self._handlers.get(sid)
                if handler is None:
                    await self.nc._process_msg(sid, words[1], reply, payload, headers)  # noqa: SLF001
                elif self._handled(handler, words[1], reply, payload, headers):
                    await asyncio.sleep(0)
            if self._parts is not parts:
                return  # another connection has begun meanwhile
        if at < size:
            parts.append(data[at:])

    def _joined(self, data: bytes) -> bytes:
        """These bytes after those that wait for them; nothing while more are missing."""
        if not self._parts:
            return data
        self._parts.append(data)
        self._missing -= len(data)
        if self._missing > 0:
            return b""
        data = b"".join(self._parts)
        self._parts.clear()
        return data

    def _handled(self, handler: Handler, subject: bytes, reply: bytes, payload: bytes, headers: bytes | None) -> bool:
        """Hands over one message; returns whether it is time for the rest of the process."""
        try:
            handler(subject, reply, payload, headers)
        except Exception:  # noqa: BLE001 - it would end nats-py's read loop, and with it the connection
            _log.exception("handler_failed", subject=subject.decode(errors="replace"))
        if self._turn_ends is None:
            self._turn_ends = time.monotonic() + TURN_S
            self._loop.call_soon(self._turn_ended)
            return False
        return time.monotonic() > self._turn_ends

    def _turn_ended(self) -> None:
        self._turn_ends = None


def _numbers(words: list[bytes]) -> tuple[int, int | None, int]:
    """Of a message's first line: the subscription, the bytes of its headers, if it has any, and of all of it."""
    try:
        return int(words[2]), int(words[-2]) if words[0] == b"HMSG" else None, int(words[-1])
    except (ValueError, IndexError):
        raise ProtocolError from None
