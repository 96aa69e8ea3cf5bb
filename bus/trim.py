"""Taking events out of a log for good.

Called by `jetgym log prune`, which knows that nothing open is among them. What lies before the first event that stays
is cut off in a few requests, whatever its size; the rest goes one by one.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final

from bus.bus import Bus
from bus.errors import ApiRefused

AT_ONCE: Final = 256
"""Deletions on their way to the server."""
_FORMS: Final = ("agents", "models", "resources", "timers", "reply", "dead", "cancel", "feed", "rollout")
"""What is cut off, in this order: of a rollout that is cut off half-way, the end goes last, so that its run is still
known and none looks open."""
_NO_MESSAGE: Final = (10037, 10043, 10057)
"""It is gone already."""


async def cut_before(bus: Bus, partition: int, seq: int) -> None:
    """Deletes the events of runs before this sequence, not what a deployment said of itself; raises `BusError`."""
    stream, start = bus.subjects.stream(partition), f"{bus.config.namespace}.{partition}"
    for form in _FORMS:
        await _api(bus, f"STREAM.PURGE.{stream}", {"filter": f"{start}.{form}.>", "seq": seq})


async def delete_events(bus: Bus, partition: int, sequences: Iterable[int]) -> None:
    """Deletes single events of a partition; raises `BusError`."""
    await _delete(bus, bus.subjects.stream(partition), list(sequences))


async def delete_pieces(bus: Bus, sequences: Iterable[int]) -> None:
    """Deletes pieces of blobs; raises `BusError`."""
    await _delete(bus, bus.subjects.blob_stream, list(sequences))


async def _delete(bus: Bus, stream: str, sequences: Sequence[int]) -> None:
    async def one(seq: int) -> None:
        try:
            await _api(bus, f"STREAM.MSG.DELETE.{stream}", {"seq": seq, "no_erase": True})
        except ApiRefused as error:
            if error.err_code not in _NO_MESSAGE:
                raise

    for start in range(0, len(sequences), AT_ONCE):
        await asyncio.gather(*(one(seq) for seq in sequences[start : start + AT_ONCE]))


async def _api(bus: Bus, verb: str, body: dict[str, Any]) -> None:
    connection = bus._connection  # noqa: SLF001 - a part of the same package
    await connection.api(verb, body, dict[str, Any], patience_s=120.0)
