"""Which version of a policy generates now? The highest that was announced, as far as it is known here.

A model worker reads the announcements of its instance from the log before it takes a call, and follows the others as
they come; so does each trainer, since another one may announce. Versions only rise: of several that announce at once,
the log may have an older one behind a newer one. It never announces anything.
"""

from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from bus import Bus
from contracts.events import Recorded
from contracts.rollouts import PolicyUpdated

_UPDATED: Final = msgspec.json.Decoder(PolicyUpdated)


class Policies:
    """The version of one model instance."""

    def __init__(self, bus: Bus, instance: str, risen: Callable[[int], None] = lambda _: None) -> None:
        """`risen` is told each version that is higher than those before."""
        self._bus, self._instance, self._risen = bus, instance, risen
        self._next = 1
        """The sequence from which on there may be news."""
        self.version: int | None = None
        """The highest that was announced; None before the first."""

    async def start(self) -> None:
        """Learns what is in the log."""
        async for recorded in self._bus.scan(self._bus.subjects.policies_of(self._instance)):
            self._learn(recorded)

    async def follow(self) -> None:
        """Learns what comes; never returns."""
        subject = self._bus.subjects.policies_of(self._instance)
        async for recorded in self._bus.scan(subject, start=self._next, follow=True):
            self._learn(recorded)

    def _learn(self, recorded: Recorded) -> None:
        self._next = recorded.seq + 1
        try:
            version = _UPDATED.decode(recorded.event.data).version
        except msgspec.DecodeError as error:
            structlog.get_logger().warning("policy.unreadable", subject=recorded.subject, error=str(error))
            return
        if self.version is None or version > self.version:
            self.version = version
            self._risen(version)
