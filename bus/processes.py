"""How does a process end when the one that started it is killed?

Called by whoever starts a process that must not outlive it: the embedded server, and `replay fork` for a deployment of
its own. It starts nothing itself.
"""

import os
import sys
from collections.abc import Sequence
from typing import Final

_EXECUTE: Final = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Asks the kernel for a signal at the parent's death, which outlasts the exec, and becomes the command."""


def not_outliving(command: Sequence[str]) -> list[str]:
    """The command so that it gets a SIGTERM when the thread that starts it ends: also when this process is killed.

    On Linux only; elsewhere it is the command as it is.
    """
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _EXECUTE, str(os.getpid()), *command]
