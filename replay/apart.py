"""Runs code that is not ours in a process of its own, and says what became of it where it gave no answer.

An agent's code may spin, end its process or bring it down; that of a verifier or a tool may wait, too. Called by
`isolated` and `several`, whose lines go in and come out here; `serving` is the other side, in the process. What is lost
is one process and the rollout that it was at: the reason names the line of the author's code. It knows nothing of what
the lines say.
"""

import asyncio
import faulthandler
import os
import re
import signal
import subprocess
import sys
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, NoReturn, Self, TypeVar

from components.durable.location import is_library, suspended
from components.loading import INSTALLED

DEADLINE_S: Final = 60.0
"""Seconds that the code of one rollout may run by default, with its import and with what it waits for."""
EVENTS_A_S: Final = 500
"""Events that are read and run again in a second at the least: on a machine with five times too much to do."""
_LINE_LIMIT: Final = 2**30
_STOPPING_S: Final = 5.0
"""Seconds that a process without work has to end."""

_LATE_S: Final = 1.0
"""Seconds after which an event loop that should have told of the deadline is taken to be held up."""

_FRAME: Final = re.compile(r'^  File "(.+)", line (\d+) in ', re.MULTILINE)
_STACK: Final = re.compile(r"^(?=\S.*\(most recent call first\))", re.MULTILINE)
_CURRENT: Final = "Current thread"
_PLUMBING: Final = (
    "components/durable",
    "components/workers",
    "replay",
    "contracts",
)
_TOOLKITS: Final = (Path("components"), Path("components/agents"), Path("components/resources"))
"""Folders of what components are written with; each component has a folder of its own in there, or elsewhere."""
_VENVS_CORE: Final = re.compile(r"^.*/\.jetgym/venvs/[^/]+/jetgym/")
"""JetGym's core in a venv of a component's own."""
_TIMED_OUT: Final = "Timeout ("
_OVERDUE: Final = "Overdue\n"

T = TypeVar("T")


class Apart:
    """A process that answers a line with lines."""

    def __init__(self, process: asyncio.subprocess.Process, report: int) -> None:
        self._process, self._report = process, report

    @classmethod
    async def start(cls, command: Sequence[str], *, hash_seed: str | None = None) -> Self:
        """Starts it; its last argument is the file descriptor that `serving` takes. Sets the hash seed, if given."""
        report, theirs = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                str(theirs),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                limit=_LINE_LIMIT,
                pass_fds=(theirs,),
                env=None if hash_seed is None else os.environ | {"PYTHONHASHSEED": hash_seed},
            )
        except BaseException:
            os.close(report)
            raise
        finally:
            os.close(theirs)
        return cls(process, report)

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.returncode is not None

    async def send(self, line: bytes) -> None:
        """Gives it a line; one that has ended takes none, which reading its answer tells."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + b"\n")
            await self._process.stdin.drain()
        except ConnectionError:
            return

    async def answer(self) -> bytes:
        """Its next line; empty where it has ended."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            await self._process.wait()
        return line

    def lost(self) -> str:
        """What ended it, and at which line of the author's code, where that is known. Only once it has ended."""
        report = _read(self._report)
        at = f" at {place}" if (place := place_in(report)) else ""
        code = self._process.returncode or 0
        if report.startswith(_TIMED_OUT):
            return f"its code did not come to an end within its deadline{at}: is there a loop that never awaits?"
        if report.startswith(_OVERDUE):
            return f"its code did not come to an end within its deadline{at}: --deadline SECONDS gives it longer"
        if code < 0:
            return f"its process was ended by {signal.Signals(-code).name}{at}"
        return f"its code ended its process with exit code {code}{at}"

    async def stop(self) -> None:
        """Ends the process; one that does not end by itself is killed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(_STOPPING_S):
                await self._process.wait()
                with suppress(ConnectionError):
                    await self._process.stdin.wait_closed()
        except BaseException as error:
            self.kill()
            await self._process.wait()
            if not isinstance(error, TimeoutError):
                raise
        finally:
            os.close(self._report)

    def kill(self) -> None:
        """Ends it in the middle of its work."""
        if not self.ended:
            self._process.kill()


class Channel(NamedTuple):
    """The other side: what a process is given and what it answers, out of reach of the code that runs in it."""

    given: BinaryIO
    answers: BinaryIO
    report: int

    @contextmanager
    def limited(self, seconds: float, events: int) -> Iterator[None]:
        """Ends this process where the block takes longer, also where it holds the interpreter.

        A long rollout has more time: `events` are those that the block goes through.
        """
        faulthandler.dump_traceback_later(seconds + events / EVENTS_A_S, exit=True, file=self.report)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()

    async def waited_for(self, work: Coroutine[Any, Any, T], seconds: float, events: int) -> T:
        """`limited`, for code that also waits, in the event loop or in threads: no thread's stack says where."""
        with self.limited(seconds + _LATE_S, events):
            timer = asyncio.get_running_loop().call_later(seconds + events / EVENTS_A_S, self._give_up, work)
            try:
                return await work
            finally:
                timer.cancel()

    def _give_up(self, work: Coroutine[Any, Any, Any]) -> None:
        """Ends this process; its report begins with where the work waits."""
        lines = [f"{_OVERDUE}{_CURRENT} (most recent call first):\n"]
        frames = reversed(list(suspended(work)))
        lines += [f'  File "{frame.f_code.co_filename}", line {frame.f_lineno} in it\n' for frame in frames]
        os.write(self.report, "".join(lines).encode())
        faulthandler.dump_traceback(self.report)
        os._exit(1)

    def say(self, line: bytes) -> None:
        """Answers a line."""
        self.answers.write(line + b"\n")
        self.answers.flush()


def serving() -> Channel:
    """Called first in the process. What code prints there goes to standard error, and what it reads is empty."""
    report = int(sys.argv[-1])
    given, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started it ends it
    sys.breakpointhook = _pass_by
    os.set_blocking(report, False)  # a report of many threads is cut where the pipe is full, and holds nothing up
    faulthandler.enable(report)
    ending = os._exit

    def exit_noted(status: int) -> NoReturn:
        faulthandler.dump_traceback(report, all_threads=False)
        ending(status)

    os._exit = exit_noted
    return Channel(given, answers, report)


def _pass_by(*_args: Any, **_kwargs: Any) -> None:
    """`breakpoint()`, where nobody sits before it."""


def _read(report: int) -> str:
    """What the process has left; nothing else holds the pipe's other end, unless the code has started a process."""
    os.set_blocking(report, False)
    try:
        return os.read(report, 2**16).decode(errors="replace")
    except BlockingIOError:
        return ""


def place_in(report: str) -> str:
    """`file:line` of the innermost frame that an author wrote, of the thread to blame before others, else of any."""
    *others, main = _STACK.split(report)  # the newest thread stands first, the one with the event loop last
    stacks = sorted([main, *others], key=lambda stack: not stack.startswith(_CURRENT))
    frames: list[tuple[str, str]] = [frame for stack in stacks for frame in _FRAME.findall(stack)]
    for file, line in frames:
        if _is_authors(file):
            return f"{file}:{line}"
    return ":".join(frames[0]) if frames else ""


def _is_authors(file: str) -> bool:
    path = Path(file)
    within = path.relative_to(INSTALLED) if path.is_relative_to(INSTALLED) else Path(_VENVS_CORE.sub("", file))
    if any(within.is_relative_to(folder) for folder in _PLUMBING) or within.parent in _TOOLKITS:
        return False
    return not is_library(file)
