"""When does a worker look for garbage in cycles?

CPython would walk all its objects each time that their number has grown by a quarter. A worker that holds tens of
thousands of rollouts has millions of objects that live long and are hardly ever in a cycle once they are dropped: the
search takes a second, in which no event is answered, and finds nothing. So here objects are searched once while they
are young, in larger lots, and all of them once a minute at most, when there are twice as many as the last search left.
Those that survived the first search have none between: of a worker that fills up, it would take 55 ms of each 400.
Their number says nothing of garbage that holds what is large. So all are searched, too, and at once, when the memory
in use has doubled by far more than so many objects take. Called by the frame.
"""

import asyncio
import gc
import math
import sys
import time
from typing import Final, NamedTuple

import structlog

from components.workers.memory import give_back, in_use

YOUNG: Final = 20_000
"""Objects made and not dropped between two searches among the youngest: one takes some milliseconds."""
_NEVER: Final = 1_000_000
_LOOK_S: Final = 0.5
"""What makes garbage of 1 MB in each of hundreds of rollouts a second soon takes gigabytes."""
_PAUSE_S: Final = 60.0
"""While rollouts by the thousand begin, the number of objects doubles every few seconds."""
_LARGE: Final = 1_000
"""Bytes for each block, of all that came since the last search: rollouts take 120 to 150."""
_PAUSES: Final = 50.0
"""After a search in vain there is none for so many times as long: large things may come and go by themselves."""


class _Size(NamedTuple):
    """How large the process is."""

    blocks: int
    used: int
    """Bytes."""

    def many(self, left: "_Size") -> bool:
        """Whether there are twice as many objects as the last search left."""
        return self.blocks > 2 * left.blocks

    def large(self, left: "_Size") -> bool:
        """Whether twice as much is in use, and few objects came that take it."""
        return self.used > 2 * left.used and self.used - left.used > _LARGE * (self.blocks - left.blocks)


async def collect_garbage() -> None:
    """Never returns; until it is cancelled the process searches for garbage in this way."""
    log = structlog.get_logger()
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()  # what is loaded by now stays
    gc.set_threshold(YOUNG, _NEVER, _NEVER)
    left, ended, pause_s, told = _size(), time.monotonic(), 0.0, -math.inf
    try:
        while True:
            await asyncio.sleep(_LOOK_S)
            size, started = _size(), time.monotonic()
            rested_s = started - ended
            if (size.many(left) and rested_s >= _PAUSE_S) or (size.large(left) and rested_s >= pause_s):
                found = gc.collect()
                give_back()  # what is free and not given back would count as left, and the next search come later
                came, left = size.used - left.used, _size()
                ended = time.monotonic()
                in_vain = size.used - left.used < came / 2
                pause_s = min(_PAUSES * (ended - started), _PAUSE_S) if in_vain else 0.0
                if ended - told >= _PAUSE_S:  # there may be two a second
                    told = ended
                    log.info("worker.searched_for_garbage", found=found, seconds=round(ended - started, 3))
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _size() -> _Size:
    return _Size(sys.getallocatedblocks(), in_use())
