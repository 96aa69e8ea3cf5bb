"""Which policy version of a model was announced last, and how is the next one?

Called by `trainer` and `status`. Model workers follow the announcements themselves.
"""

from collections.abc import Iterable
from contextlib import suppress

import msgspec

from bus import Bus, Conflict
from contracts.rollouts import PolicyUpdated
from contracts.tokens import NEWEST


async def newest_version(bus: Bus, instance: str) -> int | None:
    """The version that was announced last of a model instance; None if none was. Raises `BusError`."""
    recorded = await bus.last(bus.subjects.policies_of(instance))
    if recorded is None:
        return None
    return msgspec.json.decode(await bus.fetch_data(recorded.event), type=PolicyUpdated).version


def check_version(version: int, announced: int) -> None:
    """Raises `ValueError` for what is no policy version, or an older one than was announced."""
    if type(version) is not int or not 0 <= version <= NEWEST:
        raise ValueError(f"a policy version is a whole number from 0 to {NEWEST}, not {version!r}")
    if version < announced:
        raise ValueError(f"policy version {version} is older than {announced}, which was announced")


async def announce(bus: Bus, instances: Iterable[str], version: int) -> None:
    """Says that these models have the weights of this version. Again changes nothing. Raises `BusError`."""
    for instance in instances:
        data = msgspec.json.encode(PolicyUpdated(instance=instance, version=version))
        event = bus.event(type="policy.updated", subject=bus.subjects.policy(instance, version), data=data)
        with suppress(Conflict):
            await bus.publish(event)
