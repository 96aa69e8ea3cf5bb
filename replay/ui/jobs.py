"""Commands that a button of the web app has started: what they are, how far they have come, and what they said.

Called by the server. A command is one of `replay` as it is typed, run in the directory in which the app was started;
its words come from `forks`, never from a shell.
"""

import asyncio
import shlex
import signal
import sys
from collections import deque
from contextlib import suppress
from typing import Final, Literal

import msgspec

from replay.errors import Misused

_AT_ONCE: Final = 2
_KEPT: Final = 20
_LINES: Final = 400
_LONGEST: Final = 64 * 1024
"""Bytes of one line; what has longer ones is stopped."""


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A command as a page gets it."""

    job: int
    command: str
    """As it is typed in a shell."""
    state: Literal["running", "ended", "failed"]
    """`failed`: it ended with an exit code above 1, which says that it could not be done."""
    results: list[msgspec.Raw]
    """The lines of JSON that it has written."""
    said: list[str]
    """The last lines of its standard error."""


def typed(words: list[str], given: bytes | None = None) -> str:
    """A command as it is typed in a shell; `given` is its standard input."""
    return shlex.join(["replay", *words]) + ("" if given is None else f" <<< {shlex.quote(given.decode())}")


class Jobs:
    """The commands of one start of the app."""

    def __init__(self) -> None:
        self._jobs: dict[int, _Job] = {}
        self._last = 0

    async def start(self, words: list[str], given: bytes | None) -> JobView:
        """Starts `replay` with these words. Raises `Misused` where enough of them run."""
        if sum(job.state == "running" for job in self._jobs.values()) >= _AT_ONCE:
            raise Misused(f"{_AT_ONCE} commands run: wait until one has ended")
        self._last += 1
        job = _Job(self._last, typed(words, given))
        await job.start([*words, "--json"], given)
        self._jobs[self._last] = job
        over = [number for number, each in self._jobs.items() if each.state != "running"]
        for old in over[:-_KEPT]:
            del self._jobs[old]
        return job.view()

    def view(self, number: int) -> JobView | None:
        """The command of this number; None where there is none."""
        job = self._jobs.get(number)
        return job.view() if job is not None else None

    async def stop(self) -> None:
        """Ends those that run, as Ctrl-C does."""
        await asyncio.gather(*(job.stop() for job in self._jobs.values()))


class _Job:
    def __init__(self, number: int, command: str) -> None:
        self.state: Literal["running", "ended", "failed"] = "running"
        self._number, self._command = number, command
        self._results: deque[msgspec.Raw] = deque(maxlen=_LINES)
        self._said: deque[str] = deque(maxlen=_LINES)

    async def start(self, words: list[str], given: bytes | None) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "replay",
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LONGEST,
        )
        self._task = asyncio.get_running_loop().create_task(self._run(given))

    def view(self) -> JobView:
        return JobView(
            job=self._number,
            command=self._command,
            state=self.state,
            results=list(self._results),
            said=list(self._said),
        )

    async def stop(self) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGINT)
        await self._task

    async def _run(self, given: bytes | None) -> None:
        out, err, into = self._process.stdout, self._process.stderr, self._process.stdin
        assert out is not None
        assert err is not None
        assert into is not None
        with suppress(ConnectionError):  # it has ended without reading
            into.write(given or b"")
            await into.drain()
        into.close()
        try:
            await asyncio.gather(self._read(out), self._hear(err))
        except ValueError:  # a line that is longer than any of ours
            self._process.kill()
            self._said.append("it wrote a line that is too long")
        self.state = "ended" if await self._process.wait() in (0, 1) else "failed"

    async def _read(self, stream: asyncio.StreamReader) -> None:
        async for line in stream:
            try:
                msgspec.json.decode(line)
            except msgspec.DecodeError:
                self._said.append(line.decode(errors="replace").rstrip())
            else:
                self._results.append(msgspec.Raw(line.strip()))

    async def _hear(self, stream: asyncio.StreamReader) -> None:
        async for line in stream:
            self._said.append(line.decode(errors="replace").rstrip())
