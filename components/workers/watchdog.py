"""Ends the worker's process when code in it never lets the event loop turn.

Nothing inside the process can stop such code (`while True: pass`, a regular expression that never ends, `time.sleep` or
a read that nobody answers), and meanwhile the worker neither keeps alive what it holds, nor sees a deadline, nor stops
when told. So it is ended: with a traceback on standard error that shows the place, and with SIGVTALRM. What it held is
adopted, and what always ends its workers is buried. Only computing and waiting count, not the time in which the process
was stopped or got no processor. Called by the frame.
"""

import asyncio
import faulthandler
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Final

_AGAIN_S: Final = 1.0
_WAITING: Final = ("S", "D")
"""The states of a thread that waits, as proc(5) names them; one that gets no processor is in R."""


async def watch(seconds: float) -> None:
    """Never returns; the process ends once it has computed, or waited, for `seconds` without this getting a turn."""
    faulthandler.register(signal.SIGVTALRM, file=sys.stderr, all_threads=True, chain=True)
    again = min(_AGAIN_S, seconds / 2)
    turned, ended = threading.Event(), threading.Event()
    waits = (threading.get_native_id(), seconds, again, turned, ended)
    threading.Thread(target=_watch_waits, args=waits, name="watchdog", daemon=True).start()
    try:
        while True:
            turned.set()
            signal.setitimer(signal.ITIMER_VIRTUAL, seconds)  # the kernel counts what is computed, whoever has the GIL
            await asyncio.sleep(again)
    finally:
        ended.set()
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _watch_waits(loop: int, seconds: float, again: float, turned: threading.Event, ended: threading.Event) -> None:
    """In a thread of its own: counts how long the loop's thread has waited since its last turn.

    It counts its own looks and reads no clock: a process that is stopped does not look.
    """
    waited = 0.0
    while not ended.wait(again):
        if turned.is_set() or not _waits(loop):
            turned.clear()
            waited = 0.0
            continue
        waited += again
        if waited >= seconds:
            os.kill(os.getpid(), signal.SIGVTALRM)


def _waits(thread: int) -> bool:
    try:
        stat = Path(f"/proc/self/task/{thread}/stat").read_text()
    except OSError:  # a system that does not tell
        return True
    return stat.rpartition(") ")[2][:1] in _WAITING
