"""Who of a worker's calls may be at work now?

Called by `callee`. Those who wait get their places in the order in which they asked, each all of its own at once. It
never starts or ends a call.
"""

import asyncio
from collections import deque


class Places:
    """So many calls may be at work at once; one may have several places."""

    __slots__ = ("_waiting", "free")

    def __init__(self, free: int) -> None:
        self.free = free
        """Below 0 where some were seized."""
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, places: int) -> None:
        """Waits for so many. One that is cancelled meanwhile has none."""
        if self.free >= places and not self._waiting:
            self.free -= places
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((places, turn))
        try:
            await turn
        except asyncio.CancelledError:
            self.give(0 if turn.cancelled() else places)
            raise

    def seize(self, places: int) -> None:
        """Takes so many at once, though there may be none: for a call that has only to end."""
        self.free -= places

    def give(self, places: int) -> None:
        """Gives so many back."""
        self.free += places
        while self._waiting:
            wanted, turn = self._waiting[0]
            if not turn.done():
                if self.free < wanted:
                    return
                self.free -= wanted
                turn.set_result(None)
            self._waiting.popleft()
