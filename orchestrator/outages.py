"""What does a person hear when a server that somebody else runs is away, and when it is back?

Run by `launch` for as long as a deployment is up; the server that a deployment starts itself is told of by whoever
keeps it running. A connection to another server of a cluster is soon there: back is the log only when it answers.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, NoReturn

from bus import Bus, BusError
from bus.bus import OUTAGE_S
from bus.room import largest_stream
from orchestrator.hints import span

_LOOK_AGAIN_S: Final = 0.1


async def tell_outages(bus: Bus, url: str, report: Callable[[str], None]) -> NoReturn:
    """Has `report` told of each loss of the server, what follows from it, and of each return of the log."""
    lost: float | None = None
    connected = asyncio.Event()

    def changed(up: bool) -> None:
        nonlocal lost
        if up:
            connected.set()
        elif lost is None:
            lost = time.monotonic()
            report(
                f"the server at {url} is away: trying again until it is back (Ctrl-C stops). What waits to be written "
                f"fails after {OUTAGE_S:g} s; a run that stops so goes on with --resume, a trainer when started again"
            )

    bus.on_connection(changed)
    while True:
        await connected.wait()
        connected.clear()
        while lost is not None:
            try:
                await _ask(bus)
            except BusError:
                await asyncio.sleep(_LOOK_AGAIN_S)
            else:
                report(f"the server at {url} is back after {span(time.monotonic() - lost)}")
                lost = None


async def _ask(bus: Bus) -> None:
    """Returns when all streams have leaders and a majority agrees to something; raises `BusError`."""
    await largest_stream(bus)
    async for _ in bus.scan(bus.subjects.deployment("resolved", "*")):  # a consumer is made: a lone leader cannot
        pass
