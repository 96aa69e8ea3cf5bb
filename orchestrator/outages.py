"""What does a person hear when a server that somebody else runs is away, and when it is back?

Called by `launch`; the server that a deployment starts itself is told of by whoever keeps it running.
"""

import time
from collections.abc import Callable

from bus import Bus
from bus.bus import OUTAGE_S
from orchestrator.hints import span


def tell_outages(bus: Bus, url: str, report: Callable[[str], None]) -> None:
    """Has `report` told of each loss of the server, what follows from it, and of each return."""
    lost: list[float] = []

    def changed(up: bool) -> None:
        if not up:
            lost[:] = lost or [time.monotonic()]
            report(
                f"the server at {url} is away: trying again until it is back (Ctrl-C stops). What waits to be written "
                f"fails after {OUTAGE_S:g} s; a run that stops so goes on with --resume"
            )
        elif lost:
            report(f"the server at {url} is back after {span(time.monotonic() - lost.pop())}")

    bus.on_connection(changed)
