"""How do several coroutines learn that something has changed?

A condition without a lock, for one event loop: look, find that it is not so yet, `wait`, look again. Used by the
trainer's parts.
"""

import asyncio


class Bell:
    """Rings for all who wait."""

    def __init__(self) -> None:
        self.rings = 0
        """So often it has rung."""
        self.broken: BaseException | None = None
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Wakes all who wait now."""
        self.rings += 1
        event, self._event = self._event, asyncio.Event()
        event.set()

    def break_with(self, error: BaseException) -> None:
        """Everybody who waits, or will, gets this error: nothing more will change."""
        self.broken = error
        self.ring()

    async def wait(self) -> None:
        """Until it rings; raises what it was broken with."""
        event = self._event
        self.check()
        await event.wait()
        self.check()

    def check(self) -> None:
        """Raises what it was broken with."""
        if self.broken is not None:
            raise self.broken
