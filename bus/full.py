"""What to do while a stream is full: keep the publishes, try one at a time, say so, and go on when there is room.

Called by `publish`. A full log (`discard: new`) is no error of the event, so nothing here ever fails one; it waits
until there is room, or until the publisher is closed.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

import structlog

T = TypeVar("T")

_FIRST_S: Final = 0.1
_LIMIT_S: Final = 2.0
_TELL_AGAIN_S: Final = 10.0

_log = structlog.get_logger("bus.publish")


class FullStreams(Generic[T]):
    """The streams that are full, each with the publishes that wait for it."""

    def __init__(self, send: Callable[[T], None]) -> None:
        self._send = send
        self._streams: dict[str, _Full[T]] = {}
        self._loop = asyncio.get_running_loop()

    def __bool__(self) -> bool:
        return bool(self._streams)

    def refused(self, stream: str, publish: T, why: str) -> None:
        """The server had no room for `publish`: it waits here."""
        now = self._loop.time()
        full = self._streams.get(stream)
        if full is None:
            full = self._streams[stream] = _Full(now)
            full.timer = self._loop.call_later(full.pause_s, self._probe, stream)
        full.waiting.append(publish)
        if now >= full.tell_at:
            full.tell_at = now + _TELL_AGAIN_S
            _log.warning(
                "log_full",
                stream=stream,
                server_says=why,
                waiting_s=round(now - full.since, 1),
                next_step="publishers wait: raise max_bytes, or remove finished runs",
            )

    def stored(self, stream: str) -> None:
        """The server stored something: if the stream was full it has room again, and all that waits is sent."""
        full = self._streams.pop(stream, None)
        if full is None:
            return
        full.stop()
        _log.info("log_has_room", stream=stream, waited_s=round(self._loop.time() - full.since, 1))
        for publish in full.waiting:
            self._send(publish)

    def clear(self) -> None:
        """Forgets all; the publisher fails them."""
        for full in self._streams.values():
            full.stop()
        self._streams.clear()

    def _probe(self, stream: str) -> None:
        full = self._streams[stream]
        full.pause_s = min(_LIMIT_S, full.pause_s * 2)
        full.timer = self._loop.call_later(full.pause_s, self._probe, stream)
        if full.waiting:
            self._send(full.waiting.popleft())


class _Full(Generic[T]):
    def __init__(self, now: float) -> None:
        self.since = now
        self.tell_at = now
        self.pause_s = _FIRST_S
        self.waiting: deque[T] = deque()
        self.timer: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
