"""What this process has been given and has not settled: told to be alive in time, settled once.

Called by `pool`. The server takes back what it hears nothing of for the ack wait; here every delivery, begun or not,
gets its sign of life well before, many in one write. A delivery that the server repeats while it is held here (it
crashed and forgot, or a sign of life was lost) is the same delivery, not a second one.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from bus.connection import Connection
from bus.pulse import Pulse

ACK: Final = b"+ACK"

_PROGRESS: Final = b"+WPI"
_V1_TOKENS: Final = 9
SILENT: Final = 1 / 3
"""Of the ack wait: a delivery that was silent for so long is due."""
_STEPS: Final = 100
"""Steps in which all that is held may become due within that time: tens of thousands at once would take long."""
_LEAST: Final = 64
"""Signs of life that any step may give."""


class Held:
    """One delivered message."""

    __slots__ = ("ack_subject", "data", "heard", "num_delivered", "seq", "stream", "subject", "suspect")

    def __init__(self, subject: bytes, ack_subject: bytes, data: bytes, suspect: int, heard: float) -> None:
        tokens = ack_subject.split(b".")
        at = 2 if len(tokens) == _V1_TOKENS else 4
        self.stream = tokens[at]
        self.num_delivered = int(tokens[at + 2])
        self.seq = int(tokens[at + 3])
        self.subject, self.ack_subject, self.data, self.heard = subject, ack_subject, data, heard
        self.suspect = suspect
        """Up to this sequence a first delivery may be a second one."""

    @property
    def redelivered(self) -> bool:
        """It may have been delivered before."""
        return self.num_delivered > 1 or self.seq <= self.suspect


class Holding:
    """All deliveries of one pool in this process."""

    def __init__(self, connection: Connection, ack_wait_s: float, pulse: Pulse, on_settled: Callable[[], None]) -> None:
        self._connection = connection
        self._pulse = pulse
        self._on_settled = on_settled
        pulse.on_gap.append(self._doubt)
        connection.on_reconnect.append(self._doubt)
        self._loop = asyncio.get_running_loop()
        self._held: OrderedDict[tuple[bytes, int], Held] = OrderedDict()
        """The one that was silent for the longest is the first."""
        self._silent_s = ack_wait_s * SILENT
        self._timer = self._loop.call_later(self._silent_s / _STEPS, self._keep_alive)

    def __len__(self) -> int:
        return len(self._held)

    def take(self, subject: bytes, ack_subject: bytes, data: bytes, suspect: int) -> Held | None:
        """A message came; None if it is held already."""
        new = Held(subject, ack_subject, data, suspect, self._loop.time())
        key = new.stream, new.seq
        held = self._held.get(key)
        if held is not None:
            held.ack_subject, held.heard, held.suspect = ack_subject, new.heard, held.seq
            self._held.move_to_end(key)
            return None
        self._held[key] = new
        return new

    def redelivered(self, held: Held) -> bool:
        """It may have been delivered to another process, before or since."""
        self._pulse.beat()
        return held.redelivered

    def settle(self, held: Held, how: bytes) -> None:
        """Tells the server how it ended; does nothing the second time."""
        if self.release(held):
            self._connection.send(held.ack_subject, b"", how)

    def release(self, held: Held) -> bool:
        """Lets go of it without a word: another worker has it now. Returns whether it was held."""
        key = held.stream, held.seq
        if self._held.get(key) is not held:
            return False
        del self._held[key]
        self._on_settled()
        return True

    def close(self, delay_s: float) -> None:
        """Gives back all that is held, for delivery to anybody after `delay_s` seconds."""
        self._timer.cancel()
        if self._doubt in self._connection.on_reconnect:
            self._connection.on_reconnect.remove(self._doubt)
        for held in list(self._held.values()):
            self.settle(held, nak(delay_s))

    def _doubt(self) -> None:
        """No sign of life was given for a while: the server may have taken back all that is held."""
        for held in self._held.values():
            held.suspect = held.seq

    def _keep_alive(self) -> None:
        self._timer = self._loop.call_later(self._silent_s / _STEPS, self._keep_alive)
        self._pulse.beat()
        if not self._connection.up:
            return
        now = self._loop.time()
        for _ in range(max(_LEAST, 2 * len(self._held) // _STEPS)):
            key, held = next(iter(self._held.items()), (None, None))
            if key is None or held is None or now - held.heard < self._silent_s:
                return
            held.heard = now
            self._held.move_to_end(key)
            self._connection.send(held.ack_subject, b"", _PROGRESS)


def nak(delay_s: float) -> bytes:
    """The negative ack that comes back after `delay_s` seconds."""
    return b'-NAK {"delay": %d}' % int(delay_s * 1_000_000_000)
