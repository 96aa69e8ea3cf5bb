"""Runs code that is not ours in a process of its own, and says what became of it where it gave no answer.

An agent's code may spin, end its process or bring it down. Called by `isolated` and `several`, whose lines go in and
come out here; `serving` is the other side, in the process. What is lost is one process and the rollout
that it was at: the reason names the line of the author's code. It knows nothing of what the lines say.
"""

import asyncio
import faulthandler
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, NoReturn, Self

from components.durable.location import is_library
from components.loading import INSTALLED

DEADLINE_S: Final = 60.0
"""Seconds that the code of one rollout may run by default, with its import. Nothing is waited for meanwhile."""
EVENTS_A_S: Final = 500
"""Events that are read and run again in a second at the least: on a machine with five times too much to do."""
_LINE_LIMIT: Final = 2**30
_STOPPING_S: Final = 5.0
"""Seconds that a process without work has to end."""

_FRAME: Final = re.compile(r'^  File "(.+)", line (\d+) in ', re.MULTILINE)
_PLUMBING: Final = (
    "components/durable",
    "components/workers",
    "components/resources/runtime.py",
    "replay",
    "contracts",
)
_TIMED_OUT: Final = "Timeout ("


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
        at = f" at {place}" if (place := _place(report)) else ""
        code = self._process.returncode or 0
        if report.startswith(_TIMED_OUT):
            return f"its code did not come to an end within its deadline{at}: is there a loop that never awaits?"
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
        self.more_time(seconds + events / EVENTS_A_S)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()

    def more_time(self, seconds: float) -> None:
        """The deadline is so many seconds from now."""
        faulthandler.dump_traceback_later(seconds, exit=True, file=self.report)

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


def _place(report: str) -> str:
    """`file:line` of the innermost frame that an author wrote, else of the innermost one."""
    frames: list[tuple[str, str]] = _FRAME.findall(report)
    for file, line in frames:
        if _is_authors(file):
            return f"{file}:{line}"
    return ":".join(frames[0]) if frames else ""


def _is_authors(file: str) -> bool:
    path = Path(file)
    if path.is_relative_to(INSTALLED):
        within = path.relative_to(INSTALLED)
        if any(within.is_relative_to(folder) for folder in _PLUMBING):
            return False
    return not is_library(file)
