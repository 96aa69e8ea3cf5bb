"""How much memory does the worker's process take, and is it more than its pool may?

Code that leaks takes it from everything else on the machine, until the kernel ends one process or another. So the frame
asks here, and has the process finish what it holds and start anew. What one call wants at once, beyond any leak, is
refused in that call. A bound that cannot be kept, or leaves no room to work, is told. It frees garbage only.
"""

import asyncio
import ctypes
import gc
import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

MB: Final = 1_000_000
FINISH_S: Final = 86_400.0
"""Seconds in which such a process finishes what it holds; its calls have deadlines of their own, which are sooner."""

SOON_S: Final = 30.0
"""Seconds: what begins anew sooner has too little, or leaks fast."""
_LOOK_S: Final = 0.5
_REST: Final = 1_000 * MB
"""For the stacks of threads and the like, most of which is never used."""


def in_use() -> int:
    """Bytes in memory; where the system does not tell, the most there ever were."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def give_back() -> None:
    """Gives the system what is free, where the C library can; else it stays in use until something takes its place."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


async def grown(limit: int) -> int:
    """Returns, once more than so many bytes are in use, how many. Garbage that waits to be searched for is none."""
    while True:
        if in_use() > limit:
            gc.collect()
            give_back()
            if (used := in_use()) > limit:
                return used
        await asyncio.sleep(_LOOK_S)


def refuse_beyond(limit: int) -> int:
    """From now on `MemoryError` is raised, here and in what is started, instead of taking twice as much, and some.

    Returns how many bytes that is: fewer where the system allows no more (`ulimit -d`).
    """
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    refused = 2 * limit + _REST if most == resource.RLIM_INFINITY else min(2 * limit + _REST, most)
    resource.setrlimit(resource.RLIMIT_DATA, (refused, most))
    return refused


def growth(used: int, limit: int, empty: int, served_s: float) -> str:
    """How a process grew beyond its limit that took `empty` bytes before its first call, so many seconds ago."""
    told = f"{used // MB} MB where {limit // MB} are allowed, {empty // MB} of them before its first call"
    if served_s >= SOON_S:
        return told
    return f"{told}, {served_s:.0f} s ago: if its code does not leak, pool.memory_mb is too small"
