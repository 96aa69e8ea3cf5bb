"""Which policy version of a model was announced last?

Called by `trainer` and `status`. Model workers follow the announcements themselves.
"""

import msgspec

from bus import Bus
from contracts.rollouts import PolicyUpdated


async def newest_version(bus: Bus, instance: str) -> int | None:
    """The version that was announced last of a model instance; None if none was. Raises `BusError`."""
    recorded = await bus.last(bus.subjects.policies_of(instance))
    if recorded is None:
        return None
    return msgspec.json.decode(await bus.fetch_data(recorded.event), type=PolicyUpdated).version
