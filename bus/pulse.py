"""Did this process stand still: stopped by a signal, on a machine that slept, or in a loop that was blocked?

Then the server may have given to others what it had sent here before, and what waits in the socket does not show its
age. Called by `holding`, which beats it many times within the ack wait, and by `pull` and `pool` before they trust what
came: whoever looks first after the standstill tells all others. It sends nothing and asks nobody.
"""

import time
from collections.abc import Callable


class Pulse:
    """Calls `on_gap` when it was not beaten for longer than `longest_s` seconds."""

    __slots__ = ("_longest_s", "_monotonic", "_wall", "on_gap")

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._monotonic, self._wall = time.monotonic(), time.time()
        self.on_gap: list[Callable[[], None]] = []

    def beat(self) -> None:
        """It is alive now."""
        monotonic, wall = time.monotonic(), time.time()  # only the second goes on while a machine sleeps
        gap = monotonic - self._monotonic > self._longest_s or wall - self._wall > self._longest_s
        self._monotonic, self._wall = monotonic, wall
        if gap:
            for listener in self.on_gap:
                listener()
