"""Which policy versions generated a rollout, and which one is the newest?

Read from the captures of its model calls, one rollout at a time. Called by `feed` when a rollout is about to be
delivered, and by `trainer`.
"""

import msgspec

from bus import Bus
from contracts.rollouts import PolicyUpdated
from contracts.tokens import Capture, read_capture


async def versions_of(bus: Bus, rollout: str) -> tuple[int, int] | None:
    """The oldest and the newest version that generated any of its tokens; None where no capture says it."""
    found: list[int] = []
    for recorded in await bus.history(rollout):
        event = recorded.event
        if event.type == "model.replied" and (event.captureref or bytes(event.capture) != b"null"):
            found += _versions(read_capture(await bus.fetch_capture(event)))
    return (min(found), max(found)) if found else None


def _versions(capture: Capture) -> list[int]:
    if capture.spans:
        return [span.version for span in capture.spans]
    return list(capture.policy or ())


async def newest_version(bus: Bus, instance: str) -> int | None:
    """The version that was announced last of a model instance; None if none was."""
    recorded = await bus.last(bus.subjects.policies_of(instance))
    if recorded is None:
        return None
    return msgspec.json.decode(await bus.fetch_data(recorded.event), type=PolicyUpdated).version
