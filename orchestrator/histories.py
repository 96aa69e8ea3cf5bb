"""How is read from a log what the tokens of a rollout are made of?

The history of a rollout that has ended is read whole, also where a replica of the log lags behind; and what its model
calls refer to is fetched. Called by `samples` and `results`. It only reads.
"""

import asyncio
from collections.abc import Collection
from typing import Final, Protocol, get_args

import structlog

from bus import Unreachable
from bus.errors import BlobLost
from components.workers.adoption import LAG_S
from contracts.events import Outcome, Recorded

_LOOK_AGAIN_S: Final = 0.1
_ENDS: Final = frozenset(get_args(Outcome))
_log = structlog.get_logger("histories")


class Readable(Protocol):
    """Where a rollout's events are: a `Bus`, or a source of `replay`."""

    async def history(self, rollout: str, /) -> list[Recorded]:
        """All events of a rollout; empty where there is no such rollout."""

    async def fetch_blob(self, reference: str, /) -> bytes:
        """What an event refers to."""


async def ended_history(log: Readable, rollout: str) -> list[Recorded]:
    """The events of a rollout up to its end. What comes later, a reply that nobody waits for, is not in it.

    Raises `Unreachable` if the log does not show the end.
    """
    deadline = asyncio.get_running_loop().time() + LAG_S
    while True:
        recorded = await log.history(rollout)
        for place, each in enumerate(recorded):
            if each.event.type in _ENDS:
                return recorded[: place + 1]
        if asyncio.get_running_loop().time() > deadline:
            raise Unreachable(f"the history of {rollout} does not show its end after {LAG_S:g} s")
        await asyncio.sleep(_LOOK_AGAIN_S)


async def fetch_spoken(log: Readable, events: Collection[Recorded]) -> dict[str, bytes]:
    """What the model calls among the events refer to, by reference: data and captures.

    What the log has lost, to a power cut for example, is empty here: it cannot be read, and its call has no tokens.
    """
    spoken = [each.event for each in events if each.event.type in ("model.requested", "model.replied")]
    references = dict.fromkeys(reference for event in spoken for reference in (event.dataref, event.captureref))
    return {reference: await _fetched(log, reference) for reference in references if reference}


async def _fetched(log: Readable, reference: str) -> bytes:
    try:
        return await log.fetch_blob(reference)
    except BlobLost as error:
        _log.warning("blob_lost", reference=reference, error=str(error))
        return b""
