"""What agent code may not do, and the one function of asyncio that is not deterministic.

`Execution` installs both once in a process. The audit hook looks at few events, and does something only on a
thread that is running a rollout's loop at that moment. It cannot catch what C code does without telling Python.
"""

import asyncio
import sys
from asyncio import tasks
from asyncio.events import _get_running_loop
from collections.abc import Iterable
from typing import Any, Final

from components.durable.errors import NotInAgents
from components.durable.loop import RolloutLoop

_REFUSED: Final = frozenset(
    {
        "_thread.start_new_thread",
        "_thread.start_joinable_thread",
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.spawn",
        "os.startfile",
        "os.system",
        "pty.spawn",
        "signal.pthread_kill",
        "socket.__new__",
        "socket.getaddrinfo",
        "socket.gethostbyaddr",
        "socket.gethostbyname",
        "subprocess.Popen",
    }
)

_as_completed: Final = asyncio.as_completed
_installed = False


def install() -> None:
    """Installs the audit hook and the ordered `as_completed`; does nothing the second time."""
    global _installed  # noqa: PLW0603
    if not _installed:
        _installed = True
        sys.addaudithook(_audit)
        tasks.as_completed = asyncio.as_completed = _ordered_as_completed


def _audit(event: str, _args: tuple[object, ...]) -> None:
    if event in _REFUSED and isinstance(_get_running_loop(), RolloutLoop):
        raise NotInAgents(event)


def _ordered_as_completed(fs: Iterable[Any], *, timeout: float | None = None) -> Any:
    # asyncio's own makes tasks of coroutines in the order of a set, which is that of their addresses.
    loop = _get_running_loop()
    if isinstance(loop, RolloutLoop):
        if isinstance(fs, set | frozenset) and any(asyncio.iscoroutine(each) for each in fs):
            raise TypeError("as_completed of a set of coroutines has no order in an agent: pass a list, or make tasks")
        fs = [asyncio.ensure_future(each, loop=loop) for each in dict.fromkeys(fs)]
    return _as_completed(fs, timeout=timeout)
