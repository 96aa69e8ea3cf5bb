"""What a person sees while a run collects: a bar with rate and mean reward; plain lines where there is no terminal.

Called by the `run` command with each outcome; it shows by a clock of its own, so that the last outcome before a pause
is seen too. A run that waits because its log is full says so, and what to do.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from bus import BusError
from bus.room import FullStream
from orchestrator.hints import amount, counted, typed
from orchestrator.results import Outcome

BAR_EVERY_S = 0.1
"""Seconds between two looks of the bar."""
PLAIN_EVERY_S = 5.0
"""Seconds between two lines where the output is no terminal."""
ROOM_EVERY_S = 5.0
"""Seconds between two looks for room in the log."""


class CollectProgress:
    """The progress of one run."""

    def __init__(
        self,
        total: int,
        console: Console,
        full_stream: Callable[[], Awaitable[FullStream | None]],
        where: Sequence[str],
        *,
        concurrency: int,
    ) -> None:
        """`full_stream` says what part of the log has no room, see `bus.room`; `where` names it to `jetgym log`."""
        self._console, self._total, self._full_stream, self._where = console, total, full_stream, where
        self._concurrency = concurrency
        self._done = self._earlier = self._failed = self._cancelled = 0
        self._reward = 0.0
        self._began, self._started = datetime.now(UTC), time.monotonic()
        self._told = 0
        self._bar = Progress(
            TextColumn("[bold]rollouts"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[reward]}"),
            TextColumn("{task.fields[failed]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            auto_refresh=False,
            disable=not console.is_terminal,
        )
        self._task: TaskID = self._bar.add_task("rollouts", total=total, rate="", reward="", failed="")

    async def __aenter__(self) -> Self:
        self._bar.start()
        self._clocks = [asyncio.create_task(self._tick()), asyncio.create_task(self._watch_room())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for clock in self._clocks:
            clock.cancel()
        self._show()
        self._bar.stop()

    def add(self, ended: Outcome) -> None:
        """Counts one ended rollout; of a resumed run, those that ended before tell nothing of its rate."""
        self._done += 1
        self._earlier += ended.time < self._began
        if ended.reward is not None:
            self._reward += ended.reward
        elif ended.error == "cancelled":
            self._cancelled += 1
        else:
            self._failed += 1

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(BAR_EVERY_S if self._console.is_terminal else PLAIN_EVERY_S)
            self._show()

    async def _watch_room(self) -> None:
        """Tells when the log is full, and when it has room again."""
        full_since = None
        while True:
            await asyncio.sleep(ROOM_EVERY_S)
            try:
                full = await self._full_stream()
            except BusError:
                continue  # the server is away, which is told elsewhere
            if full is not None and full_since is None:
                full_since = time.monotonic()
                left = self._total - self._done
                self._console.print(
                    f"the log is full ({full.name}: {amount(full.used)} of {amount(full.limit)}, log.max_bytes): "
                    f"{counted(left, 'rollout')} {'waits' if left == 1 else 'wait'} for room, nothing is lost. All "
                    f"goes on when runs that are over are pruned, or when it is larger:\n"
                    f"  {typed('jetgym', 'log', 'prune', *self._where, '--keep', '0')}\n"
                    f"  {typed('jetgym', 'log', 'resize', *self._where, '--max-bytes', str(2 * full.limit))}",
                    style="yellow",
                    highlight=False,
                    markup=False,
                    soft_wrap=True,
                )
            elif full is None and full_since is not None:
                self._console.print(f"the log has room again after {time.monotonic() - full_since:.0f} s")
                full_since = None

    def _show(self) -> None:
        fields = self._fields()
        if self._console.is_terminal:
            rate, reward, failed = fields.values()
            self._bar.update(self._task, completed=self._done, refresh=True, rate=rate, reward=reward, failed=failed)
        elif self._done > self._told:
            self._told = self._done
            told = " · ".join(text for text in fields.values() if text)
            self._console.print(f"{self._done}/{self._total} rollouts · {told}", highlight=False)

    def _in_flight(self) -> str:
        """Shown until the first has ended, so that it is seen that they are under way."""
        return "" if self._done else f"{min(self._concurrency, self._total):,} in flight"

    def _fields(self) -> dict[str, str]:
        scored = self._done - self._failed - self._cancelled
        without = ((self._failed, "failed"), (self._cancelled, "cancelled"))
        seconds = max(time.monotonic() - self._started, 1e-9)
        return {
            "rate": f"{(self._done - self._earlier) / seconds:.1f}/s",
            "reward": f"mean reward {self._reward / scored:.3f}" if scored else self._in_flight(),
            "failed": ", ".join(f"{count} {what}" for count, what in without if count),
        }
