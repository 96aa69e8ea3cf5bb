"""When does a worker look for garbage in cycles?

CPython would walk all its objects each time that their number has grown by a quarter. A worker that holds tens of
thousands of rollouts has millions of objects that live long and are hardly ever in a cycle once they are dropped: the
search takes a second, in which no event is answered, and finds nothing. So here objects are searched once while they
are young, in larger lots, and all of them once a minute at most, when there are twice as many as the last search left.
Those that survived the first search have none between: of a worker that fills up, it would take 55 ms of each 400.
Called by the frame.
"""

import asyncio
import gc
import sys
import time
from typing import Final

import structlog

YOUNG: Final = 20_000
"""Objects made and not dropped between two searches among the youngest: one takes some milliseconds."""
_NEVER: Final = 1_000_000
_LOOK_S: Final = 60.0
"""While rollouts by the thousand begin, their number doubles every few seconds."""


async def collect_garbage() -> None:
    """Never returns; until it is cancelled the process searches for garbage in this way."""
    log = structlog.get_logger()
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()  # what is loaded by now stays
    gc.set_threshold(YOUNG, _NEVER, _NEVER)
    left = sys.getallocatedblocks()
    try:
        while True:
            await asyncio.sleep(_LOOK_S)
            if sys.getallocatedblocks() > 2 * left:
                started = time.perf_counter()
                found = gc.collect()
                left = sys.getallocatedblocks()
                log.info("worker.searched_for_garbage", found=found, seconds=round(time.perf_counter() - started, 3))
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
