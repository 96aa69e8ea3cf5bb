"""Which line of agent code makes a call, or waits for one?

Used for error messages only. Frames of JetGym's own plumbing and of asyncio are passed over: the line named is one
that the agent's author wrote. Where no such line is on the way to a call (`Agent.run` as it comes makes it), the
line of the toolkit that the author's class was entered through is better than none.
"""

import asyncio
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

UNKNOWN: Final = ("<unknown>", 0)
_TOOLKIT_FOLDER: Final = Path(__file__).parent.parent / "agents"

_PLUMBING: Final = re.compile(
    r"(asyncio|contextlib|contracts|replay|components\.(durable|workers)|components\.agents\.\w+$)\b"
)
"""Modules directly in `components/agents` are the authors' toolkit; an agent is a package in there, or elsewhere."""


_LIBRARY: Final = re.compile(r"/(site|dist)-packages/(?!components/)|/lib/python\d[^/]*/(?!(site|dist)-packages/)|^<")
_TOOLKIT: Final = re.compile(r"components\.agents\.\w+$")
_DRIVER: Final = "components.durable.execution"
"""Frames from here outwards are of whoever drives the execution, not of the agent."""


def calling() -> tuple[str, int]:
    """File and line of the innermost agent frame on this thread's stack, within its execution."""
    frames = []
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - asked by the execution, beyond which the agent ends
    while frame is not None and _module(frame) != _DRIVER:
        frames.append(frame)
        frame = frame.f_back
    return _innermost((frame, frame.f_lineno) for frame in reversed(frames))


def waiting(task: asyncio.Task[Any]) -> tuple[str, int]:
    """File and line of the innermost agent frame in which a suspended branch waits."""
    return _innermost((frame, frame.f_lineno) for frame in suspended(task.get_coro()))


def raising(error: BaseException) -> tuple[str, int]:
    """File and line of the innermost agent frame that an error came through; libraries raise what agents asked for."""
    frames = traceback.walk_tb(error.__traceback__)
    return _innermost((frame, line) for frame, line in frames if not is_library(frame.f_code.co_filename))


def is_library(file: str) -> bool:
    """Whether a file is of Python or of what is installed beside JetGym."""
    return _LIBRARY.search(file) is not None


def stack(task: asyncio.Task[Any]) -> list[FrameType]:
    """The frames of a suspended branch that are of an agent, outermost first, else the toolkit's outermost one."""
    return authored(suspended(task.get_coro()))


def authored(frames: Iterable[FrameType]) -> list[FrameType]:
    """Those of an agent, or the outermost one of the toolkit where none is of an agent."""
    found = list(frames)
    agents = [frame for frame in found if _PLUMBING.match(_module(frame)) is None]
    return agents or [frame for frame in found if _TOOLKIT.match(_module(frame))][:1]


def place(frames: Sequence[FrameType]) -> tuple[str, int]:
    """File and line of the innermost of the frames that `stack` found."""
    return frames[-1].f_code.co_filename, frames[-1].f_lineno


def is_agents(place: tuple[str, int]) -> bool:
    """Whether a line is of an agent and not of the toolkit."""
    return place != UNKNOWN and Path(place[0]).parent != _TOOLKIT_FOLDER


def _innermost(frames: Iterable[tuple[FrameType, int]]) -> tuple[str, int]:
    """The innermost agent frame among frames and their lines from outside in, else the outermost one of the toolkit."""
    found = toolkit = UNKNOWN
    for frame, line in frames:
        if _PLUMBING.match(_module(frame)) is None:
            found = frame.f_code.co_filename, line
        elif toolkit == UNKNOWN and _TOOLKIT.match(_module(frame)):
            toolkit = frame.f_code.co_filename, line
    return toolkit if found == UNKNOWN else found


def _module(frame: FrameType) -> str:
    name: str = frame.f_globals.get("__name__", "")
    return name


def definition(function: Callable[..., object]) -> tuple[str, int]:
    """File and first line of a function."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if isinstance(code, CodeType) else UNKNOWN


def suspended(awaitable: Any) -> Iterator[FrameType]:
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
