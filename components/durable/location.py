"""Which line of agent code makes a call, or waits for one?

Used for error messages only. Frames of JetGym's own plumbing and of asyncio are passed over: the line named is one
that the agent's author wrote.
"""

import asyncio
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any, Final

UNKNOWN: Final = ("<unknown>", 0)

_PLUMBING: Final = re.compile(
    r"(asyncio|contextlib|contracts|components\.(durable|workers)|components\.agents\.\w+$)\b"
)
"""Modules directly in `components/agents` are the authors' toolkit; an agent is a package in there, or elsewhere."""


def _is_plumbing(frame: FrameType) -> bool:
    return _PLUMBING.match(frame.f_globals.get("__name__", "")) is not None


def calling() -> tuple[str, int]:
    """File and line of the innermost agent frame on this thread's stack."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None:
        if not _is_plumbing(frame):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return UNKNOWN


def waiting(task: asyncio.Task[Any]) -> tuple[str, int]:
    """File and line of the innermost agent frame in which a suspended branch waits."""
    found = UNKNOWN
    for frame in _suspended(task.get_coro()):
        if not _is_plumbing(frame):
            found = frame.f_code.co_filename, frame.f_lineno
    return found


def definition(function: Callable[..., object]) -> tuple[str, int]:
    """File and first line of a function."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if isinstance(code, CodeType) else UNKNOWN


def _suspended(awaitable: Any) -> Iterator[FrameType]:
    """The frames of a chain of awaits, outermost first."""
    while awaitable is not None:
        for prefix, awaits in (("cr", "cr_await"), ("gi", "gi_yieldfrom"), ("ag", "ag_await")):
            if hasattr(awaitable, awaits):
                frame = getattr(awaitable, f"{prefix}_frame")
                if frame is not None:
                    yield frame
                awaitable = getattr(awaitable, awaits)
                break
        else:
            return
