"""What this process has been given and has not settled: told to be alive in time, settled once.

Called by `pool`. The server takes back what it hears nothing of for the ack wait; here every delivery, begun or not,
gets its sign of life well before, many in one write. A delivery that the server repeats while it is held here (it
crashed and forgot, or a sign of life was lost) is the same delivery, not a second one.
"""

import asyncio
from typing import Final

from bus.connection import Connection

ACK: Final = b"+ACK"

_PROGRESS: Final = b"+WPI"
_V1_TOKENS: Final = 9
_ROUNDS: Final = 6
"""Rounds an ack wait; a delivery is due when it was silent for two of them."""


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

    def __init__(self, connection: Connection, ack_wait_s: float) -> None:
        self._connection = connection
        self._ack_wait_s = ack_wait_s
        self._loop = asyncio.get_running_loop()
        self._held: dict[tuple[bytes, int], Held] = {}
        self._timer = self._loop.call_later(ack_wait_s / _ROUNDS, self._keep_alive)

    def __len__(self) -> int:
        return len(self._held)

    def take(self, subject: bytes, ack_subject: bytes, data: bytes, suspect: int) -> Held | None:
        """A message came; None if it is held already."""
        new = Held(subject, ack_subject, data, suspect, self._loop.time())
        key = new.stream, new.seq
        held = self._held.get(key)
        if held is not None:
            held.ack_subject, held.heard = ack_subject, new.heard
            return None
        self._held[key] = new
        return new

    def settle(self, held: Held, how: bytes) -> None:
        """Tells the server how it ended; does nothing the second time."""
        if self._held.get((held.stream, held.seq)) is held:
            del self._held[held.stream, held.seq]
            self._connection.send(held.ack_subject, b"", how)

    def release(self, held: Held) -> None:
        """Lets go of it without a word: another worker has it now."""
        if self._held.get((held.stream, held.seq)) is held:
            del self._held[held.stream, held.seq]

    def close(self, delay_s: float) -> None:
        """Gives back all that is held, for delivery to anybody after `delay_s` seconds."""
        self._timer.cancel()
        for held in list(self._held.values()):
            self.settle(held, nak(delay_s))

    def _keep_alive(self) -> None:
        self._timer = self._loop.call_later(self._ack_wait_s / _ROUNDS, self._keep_alive)
        if not self._connection.up:
            return
        now = self._loop.time()
        silent_since = now - 2 * self._ack_wait_s / _ROUNDS
        for held in self._held.values():
            if held.heard <= silent_since:
                held.heard = now
                self._connection.send(held.ack_subject, b"", _PROGRESS)


def nak(delay_s: float) -> bytes:
    """The negative ack that comes back after `delay_s` seconds."""
    return b'-NAK {"delay": %d}' % int(delay_s * 1_000_000_000)
