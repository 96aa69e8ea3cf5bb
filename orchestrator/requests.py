"""What does an event say that asks for a rollout?

A power cut may have taken what it refers to, and a foreign client may have written it. No worker could run such a
rollout, so it has failed, and whoever reads a run from its log goes on without what it asked for. Called by all of
these. It only reads.
"""

from typing import Final

import msgspec
import structlog

from bus import Bus
from bus.errors import BlobLost
from contracts.events import Event
from contracts.rollouts import RolloutRequest
from orchestrator.errors import OrchestratorError

_REQUEST: Final = msgspec.json.Decoder(RolloutRequest)


class UnreadableRequest(OrchestratorError):
    """What was asked cannot be read; the message says of which rollout, and why."""


async def read_request(bus: Bus, event: Event) -> RolloutRequest:
    """What is asked; raises `UnreadableRequest`, `BusError`."""
    try:
        return _REQUEST.decode(await bus.fetch_data(event))
    except (msgspec.DecodeError, UnicodeDecodeError, BlobLost) as error:
        raise UnreadableRequest(f"the request of rollout {event.rolloutid} cannot be read: {error}") from error


async def request_if_readable(bus: Bus, event: Event) -> RolloutRequest | None:
    """What is asked; None, and a warning, where that cannot be read. Raises `BusError`."""
    try:
        return await read_request(bus, event)
    except UnreadableRequest as error:
        structlog.get_logger("requests").warning("unreadable_request", rollout=event.rolloutid, error=str(error))
        return None
