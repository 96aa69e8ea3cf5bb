"""How are local workers kept running?

Starts the worker processes of a deployment, waits until each serves, keeps what they print (`worker_log`), starts again
the ones that die, and ends all of them in the end: SIGTERM, a deadline, then SIGKILL. Called by `launch`. It kills
nothing but its own children, and knows nothing of what they do.
"""

import asyncio
import json
import os
import random
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from components.workers.exits import GROWN, LOG_AWAY, REFUSED, SAID
from orchestrator.errors import WorkerDied
from orchestrator.redaction import Redactor
from orchestrator.settings import LaunchSettings
from orchestrator.worker_log import WorkerLog

BACKOFF_S = 0.25
"""Wait before a restart, at least."""
MAX_BACKOFF_S = 30.0
"""Starts of a worker that ends again and again are so far apart, at most. One that has lived longer was healthy."""
_FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
"""The kernel kills for memory, too, and whose that was it does not say."""

OnCrash = Callable[[str, str], Awaitable[None]]
"""Told of a worker that served and was ended by what ran in it: its identity, and how."""


class WorkerCommand(NamedTuple):
    """One worker process to keep running."""

    name: str
    """`<instance>-<index>`: names its log file."""
    argv: Sequence[str]
    spec: bytes
    """What it reads on standard input; holds secrets."""


def pause_s(restarts: int, lived_s: float) -> float:
    """Seconds to wait with the next start of a worker that ended, after so many restarts that were soon over.

    Its starts get further apart, not its absences longer: what serves until it ends is soon there again.
    """
    apart_s = min(BACKOFF_S * 2.0 ** min(restarts, 10), MAX_BACKOFF_S)
    return max(apart_s - lived_s, BACKOFF_S)


class Supervisor:
    """The local workers of one deployment."""

    def __init__(
        self,
        settings: LaunchSettings,
        logs: Path,
        redactor: Redactor,
        report: Callable[[str], None],
        *,
        until_log_serves: Callable[[], Awaitable[object]] | None = None,
        on_crash: OnCrash | None = None,
    ) -> None:
        """`until_log_serves` is awaited before each start of a worker, which could do nothing without the log."""
        self._settings, self._logs, self._redactor, self._report = settings, logs, redactor, report
        self._until_log_serves, self._on_crash = until_log_serves, on_crash
        self._workers: list[_Worker] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def pids(self) -> dict[str, int]:
        """The process IDs of the workers that run now."""
        return {worker.name: worker.pid for worker in self._workers if worker.pid is not None}

    async def start(self, commands: Sequence[WorkerCommand]) -> None:
        """Starts all workers at once and returns when each of them serves; raises `WorkerDied`."""
        self._logs.mkdir(parents=True, exist_ok=True)
        self._workers = [
            _Worker(
                c,
                self._settings,
                self._logs,
                self._redactor,
                self._report,
                until_log_serves=self._until_log_serves,
                on_crash=self._on_crash,
            )
            for c in commands
        ]
        for worker in self._workers:
            task = asyncio.create_task(worker.keep(), name=worker.name)
            task.add_done_callback(self._ended)
            self._tasks.append(task)
        serving = asyncio.create_task(self._all_ready())
        watching = asyncio.create_task(self.watch())
        try:
            await asyncio.wait({serving, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                watching.result()
        finally:
            serving.cancel()
            watching.cancel()
            await asyncio.gather(serving, watching, return_exceptions=True)

    async def _all_ready(self) -> None:
        for worker in self._workers:
            await worker.ready.wait()

    async def watch(self) -> None:
        """Returns never; raises `WorkerDied` when a worker cannot be kept alive."""
        await asyncio.shield(self._failed)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def stop(self) -> None:
        """Ends all workers: politely, and by force after the drain deadline, or at once when it is cancelled."""
        for worker in self._workers:
            worker.terminate()
        if self._tasks:
            try:
                _, late = await asyncio.wait(self._tasks, timeout=self._settings.drain_s)
                if late:
                    self._report(f"{len(late)} workers did not end within {self._settings.drain_s:g} s; killing them")
            finally:
                for worker in self._workers:
                    worker.kill()
                await asyncio.wait(self._tasks)
        if not self._failed.cancel():
            self._failed.exception()  # whoever had to know was told by `watch`


class _Worker:
    """Keeps one worker process running."""

    def __init__(
        self,
        command: WorkerCommand,
        settings: LaunchSettings,
        logs: Path,
        redactor: Redactor,
        report: Callable[[str], None],
        *,
        until_log_serves: Callable[[], Awaitable[object]] | None,
        on_crash: OnCrash | None,
    ) -> None:
        self.name = command.name
        self.ready = asyncio.Event()
        self._identity = ""
        """Of the process that serves, as it said itself."""
        self._until_log_serves, self._on_crash = until_log_serves, on_crash
        self._command, self._settings, self._report = command, settings, report
        self._log = WorkerLog(logs / f"{command.name}.log", redactor)
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        self._deadline: asyncio.TimerHandle | None = None
        """Of its start."""
        self._late = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    def terminate(self) -> None:
        self._stopping.set()
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends the process and what it started."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if (pid := self.pid) is not None:
            with suppress(ProcessLookupError):
                (os.killpg if number is signal.SIGKILL else os.kill)(pid, number)

    def _start_is_late(self) -> None:
        self._late = True
        self.kill()

    async def keep(self) -> None:
        """Runs the process again and again until `terminate`; raises `WorkerDied` when it does not come up."""
        loop = asyncio.get_running_loop()
        failed_starts = restarts = 0
        while not self._stopping.is_set():
            await self._log_or_stop()
            started = loop.time()
            code = await self._run_once()
            if self._stopping.is_set():
                return
            failed_starts = 0 if self.ready.is_set() else failed_starts + 1
            refused = code == REFUSED and not self.ready.is_set()
            if refused or failed_starts >= self._settings.failed_starts:
                raise WorkerDied(self._last_words(code, failed_starts))
            lived = loop.time() - started
            delay = pause_s(restarts, lived) * random.uniform(0.5, 1.0)  # noqa: S311
            restarts = 0 if lived > MAX_BACKOFF_S else restarts + 1
            self._report(f"{self.name} {self._how(code)}; starting it again in {delay:.1f} s ({self._log.path})")
            if self._on_crash is not None and self.ready.is_set() and self._is_crash(code):
                await self._on_crash(self._identity, self._how(code))
            self.ready.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._stopping.wait()

    async def _log_or_stop(self) -> None:
        """Returns when there is a log to work on, or nothing to work for."""
        if self._until_log_serves is None:
            return
        waiting = [asyncio.ensure_future(self._until_log_serves()), asyncio.ensure_future(self._stopping.wait())]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()

    async def _run_once(self) -> int:
        """One life of the process; returns its exit code."""
        self._process = process = await asyncio.create_subprocess_exec(
            *self._command.argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        if self._stopping.is_set():
            self.terminate()
        self._late = False
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self._settings.start_deadline_s, self._start_is_late)
        with self._log.life():
            copying = [
                asyncio.create_task(self._log.copy(process.stdout, self._says_ready)),
                asyncio.create_task(self._log.copy(process.stderr)),
            ]
            try:
                with suppress(BrokenPipeError, ConnectionResetError):  # it died at once: its log says why
                    if not process.stdin.is_closing():  # uvloop refuses then
                        process.stdin.write(self._command.spec)
                        await process.stdin.drain()
                process.stdin.close()
                code = await process.wait()
                await asyncio.wait(copying, timeout=1.0)  # a grandchild may hold the pipes open
            finally:
                self._deadline.cancel()
                for task in copying:
                    task.cancel()
                self.kill()
                await process.wait()
        return code

    def _says_ready(self, line: bytes) -> bool:
        """Whether a line on standard output is the one that says that it serves."""
        if self.ready.is_set() or (said := _ready(line)) is None:
            return False
        assert self._deadline is not None
        self._deadline.cancel()
        self._identity = str(said.get("worker", ""))
        self.ready.set()
        return True

    def _is_crash(self, code: int) -> bool:
        """Whether it may have been ended by what ran in it, if it was not told to end."""
        return -code not in _FROM_OUTSIDE and not (code in (LOG_AWAY, GROWN) and SAID[code] in self._log.said)

    def _how(self, code: int) -> str:
        if code == GROWN and (grown := self._log.said.get(SAID[GROWN])) is not None:
            return f"ended because it took more memory than its pool.memory_mb ({grown})"
        if code >= 0:
            return f"ended with exit code {code}"
        late = f" because it did not serve within {self._settings.start_deadline_s:g} s" if self._late else ""
        return f"was killed by {signal.Signals(-code).name}{late}"

    def _last_words(self, code: int, times: int) -> str:
        if code == REFUSED and (reason := self._log.said.get(SAID[REFUSED])) is not None:
            return f"worker {self.name}: {reason}"
        tail = "\n".join(f"  {line}" for line in self._log.tail) or "  (it said nothing)"
        often = "" if times == 1 else f", {times} times in a row"
        how = f"{self._how(code)} before it served{often}"
        return f"worker {self.name} {how}. Its log {self._log.path} ends with:\n{tail}"


def _ready(line: bytes) -> dict[str, object] | None:
    """What a worker says when it serves; None for any other line."""
    try:
        said = json.loads(line)
    except ValueError:
        return None
    return said if isinstance(said, dict) and said.get("ready") is True else None
