"""How does a process of a deployment share the cores with others, and end when the one that started it is killed?

Called by workers for themselves, and by whoever starts a process that must not outlive it: the embedded server, and
`replay fork` for a deployment of its own. It starts nothing itself.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

_NOT_OUTLIVE: Final = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
"""
"""Asks the kernel for a signal at the parent's death, which outlasts the exec."""
_AS_BATCH: Final = """
try:
    if os.sched_getscheduler(0) == os.SCHED_OTHER:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
except OSError:
    pass
"""
"""What `run_as_batch` does; it outlasts the exec, too."""
_EXECUTE: Final = "os.execv(sys.argv[2], sys.argv[2:])"
"""Becomes the command."""


def run_as_batch() -> None:
    """From now on this thread, and what it starts, takes no core away from others when a message comes for it.

    It has as large a share of the cores as before, in longer stretches. A server and its workers on busy cores would
    else interrupt each other a thousand times a second, each time with cold caches. Does nothing where the system has
    no such scheduling, does not grant it, or was told of another one (`chrt`).
    """
    if sys.platform == "linux":
        with suppress(OSError):
            if os.sched_getscheduler(0) == os.SCHED_OTHER:
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def not_outliving(command: Sequence[str], *, as_batch: bool = False) -> list[str]:
    """The command so that it gets a SIGTERM when the thread that starts it ends: also when this process is killed.

    With `as_batch` it is scheduled as by `run_as_batch`, and so is what it starts. On Linux only; elsewhere it is the
    command as it is.
    """
    if sys.platform != "linux":
        return list(command)
    code = _NOT_OUTLIVE + (_AS_BATCH if as_batch else "") + _EXECUTE
    return [sys.executable, "-I", "-S", "-c", code, str(os.getpid()), *command]
