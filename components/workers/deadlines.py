"""Which rollouts of a worker are past their deadline?

A deadline is for what a rollout does: the time in which it could not go on, since the log was full or away or this
process stood still, does not count. Run by the agent worker beside everything else. It ends no rollout itself.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

from bus import Bus, BusError
from bus.errors import BusClosed
from bus.room import LogRoom
from components.workers.rollout import Rollout

LOOK_S: Final = 1.0
"""Seconds between two looks."""


async def strike_overdue(
    bus: Bus, deadline_s: float, rollouts: Mapping[tuple[str, str], Rollout], strike: Callable[[Rollout], None]
) -> NoReturn:
    """Has `strike` told of each of these rollouts, which come and go, that is past its deadline."""
    room, looked = LogRoom(bus), time.monotonic()
    while True:
        await asyncio.sleep(LOOK_S)
        await _until_log_serves(bus, room)
        before, looked = looked, time.monotonic()
        if (rest := looked - before - LOOK_S) > LOOK_S:
            for rollout in rollouts.values():
                rollout.started = min(looked, rollout.started + rest)
        for rollout in [each for each in rollouts.values() if each.started < looked - deadline_s and not each.ended]:
            strike(rollout)


async def _until_log_serves(bus: Bus, room: LogRoom) -> None:
    """Returns when the log answers and has room."""
    while True:
        try:
            if await room.full() is None and not bus.log_full:
                return
        except BusClosed:
            raise
        except BusError:
            pass  # the connection tells of it
        await asyncio.sleep(LOOK_S)
