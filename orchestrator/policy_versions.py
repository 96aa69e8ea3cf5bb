"""Which policy version does a model have, and how is the next one announced?

Called by `trainer` and `status`. Whoever has to know of announcements as they come follows them with `Policies`.
"""

from collections.abc import Iterable
from contextlib import suppress

import msgspec

from bus import Bus, Conflict
from components.workers.policies import Policies
from contracts.rollouts import PolicyUpdated
from contracts.tokens import NEWEST


async def newest_version(bus: Bus, instance: str) -> int | None:
    """The highest version that was announced of a model instance; None if none was. Raises `BusError`."""
    policies = Policies(bus, instance)
    await policies.start()
    return policies.version


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
