"""What may agent code not do, and which functions of asyncio are not deterministic?

`Execution` installs the audit hook, once in a process. The hook looks at few events, and does something only on a
thread that runs a rollout's loop at that moment. It cannot see what C code does without telling Python. What a debugger
that was attached does on that thread (it starts threads for what is evaluated) is no doing of the agent's.

`asyncio.as_completed` and `asyncio.wait` go through sets, whose order is by the addresses of what is in them. On import
of this module they are replaced by functions that do the same, in order, on a rollout's loop, and that are asyncio's
own on any other.
"""

import _thread
import asyncio
import sys
import threading
from asyncio import tasks
from asyncio.events import _get_running_loop
from collections.abc import Iterable
from typing import Any, Final

from components.durable.branches import Branch, Promise
from components.durable.errors import NotInAgents
from components.durable.loop import RolloutLoop

_REFUSED: Final = frozenset(
    {
        "_thread.start_joinable_thread",
        "_thread.start_new_thread",
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.spawn",
        "os.startfile",
        "os.system",
        "socket.__new__",
        "socket.getaddrinfo",
        "socket.gethostbyaddr",
        "socket.gethostbyname",
        "subprocess.Popen",
    }
)

_DEBUGGERS: Final = ("debugpy", "pydevd", "_pydev")

_as_completed: Final = asyncio.as_completed
_wait: Final = asyncio.wait
_installed = False


def install() -> None:
    """Installs the audit hook; does nothing the second time."""
    global _installed  # noqa: PLW0603
    if not _installed:
        _installed = True
        sys.addaudithook(_audit)
        if sys.version_info < (3, 12):  # which does not audit threads
            threading._start_new_thread = _start_new_thread  # type: ignore[attr-defined]  # noqa: SLF001


def _audit(event: str, _args: tuple[object, ...]) -> None:
    if event in _REFUSED and isinstance(_get_running_loop(), RolloutLoop) and not _debugging():
        raise NotInAgents(event)


def _debugging() -> bool:
    """Whether it is a debugger that was attached, beside the agent's code, which it has stopped."""
    frame = sys._getframe(2)  # noqa: SLF001 - who asks
    while frame is not None and (name := frame.f_globals.get("__name__", "")) != RolloutLoop.__module__:
        if name.startswith(_DEBUGGERS):
            return True
        frame = frame.f_back  # type: ignore[assignment]  # None at the outermost one
    return False


def _start_new_thread(*args: Any) -> int:
    _audit("_thread.start_new_thread", args)
    return _thread.start_new_thread(*args)


def _ordered_as_completed(fs: Iterable[Any], *, timeout: float | None = None) -> Any:
    if isinstance(_get_running_loop(), RolloutLoop) and not asyncio.isfuture(fs) and not asyncio.iscoroutine(fs):
        if isinstance(fs, set | frozenset) and any(asyncio.iscoroutine(each) for each in fs):
            raise TypeError("a set of coroutines has no order that lasts: pass a list to as_completed, or make tasks")
        fs = _all_ordered(asyncio.ensure_future(each) for each in dict.fromkeys(fs))
    return _as_completed(fs, timeout=timeout)


async def _ordered_wait(
    fs: Iterable[Any],
    *,
    timeout: float | None = None,  # noqa: ASYNC109 - asyncio's own signature
    return_when: str = asyncio.ALL_COMPLETED,
) -> Any:
    if isinstance(_get_running_loop(), RolloutLoop) and not asyncio.isfuture(fs) and not asyncio.iscoroutine(fs):
        fs = _all_ordered(fs)
    return await _wait(fs, timeout=timeout, return_when=return_when)


def _all_ordered(fs: Iterable[Any]) -> list[Any]:
    found = list(fs)
    for each in found:
        if asyncio.isfuture(each) and not isinstance(each, Branch | Promise):
            raise TypeError(
                f"{type(each).__name__} has no order that lasts, so as_completed and wait cannot take it in an agent: "
                f"await it in a coroutine and pass asyncio.create_task of that, or use loop.create_future()"
            )
    return found


asyncio.as_completed = tasks.as_completed = _ordered_as_completed
asyncio.wait = tasks.wait = _ordered_wait
