"""Ends the worker's process when code in it computes on and on and never lets the event loop turn.

Nothing inside the process can stop such code (`while True: pass`, a regular expression that never ends), and meanwhile
the worker neither keeps alive what it holds nor stops when told. So the kernel ends it: with a traceback on standard
error that shows the place, and with SIGVTALRM. What it held is adopted, and what always ends its workers is buried.
Only computing counts: a process that waits, or was stopped, is left alone. Called by the frame.
"""

import asyncio
import faulthandler
import signal
import sys
from typing import Final

_AGAIN_S: Final = 1.0


async def watch(seconds: float) -> None:
    """Never returns; the process ends once it has computed for `seconds` without this getting a turn."""
    faulthandler.register(signal.SIGVTALRM, file=sys.stderr, all_threads=True, chain=True)
    try:
        while True:
            signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
            await asyncio.sleep(min(_AGAIN_S, seconds / 2))
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
