"""Which workers were told to stop? What a worker gave back because of that is no fault of what it held.

A worker says so in the log before it gives anything back. Read where a call or a rollout has been tried so often that
it is about to be buried (`suspects`, `adoption`): only the workers that it may have ended count against it.
"""

import asyncio
from typing import Final

import msgspec
import structlog

from bus import Bus, BusError
from contracts.deployments import WorkerStopping
from contracts.events import Kind

_SAY_S: Final = 1.0
"""Seconds that saying so may take: where the log is away, a worker ends without it."""

UNCOUNTED: Final = 2**31
"""Deliveries that the pools of workers allow: `suspects` and `adoption` count in their own way."""
UNSUSPECTED: Final = 2
"""Deliveries: one worker may die of anything."""


async def say_stopping(bus: Bus, worker: str, kind: Kind, instance: str) -> None:
    """Writes into the log that this worker was told to stop."""
    said = WorkerStopping(worker=worker, kind=kind, instance=instance)
    subject = bus.subjects.deployment("stopping", worker)
    event = bus.event(type="deployment.stopping", subject=subject, data=msgspec.json.encode(said))
    try:
        async with asyncio.timeout(_SAY_S):
            await bus.publish(event)
    except (BusError, TimeoutError) as error:
        structlog.get_logger().warning("worker.stops_unsaid", error=f"{type(error).__name__}: {error}")


async def was_stopped(bus: Bus, worker: str) -> bool:
    """Whether this worker was told to stop."""
    return await bus.last(bus.subjects.deployment("stopping", worker)) is not None


def in_a_row(workers: int) -> str:
    """So many workers, in the message of what they did not outlive."""
    return "1 worker" if workers == 1 else f"{workers} workers in a row"
