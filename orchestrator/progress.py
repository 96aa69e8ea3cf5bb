"""What a person sees while a run collects: a bar with rate and mean reward; plain lines where there is no terminal.

Called by the `run` command with each outcome.
"""

import time
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

from orchestrator.results import Outcome

PLAIN_EVERY_S = 5.0
"""Seconds between two lines where the output is no terminal."""


class CollectProgress:
    """The progress of one run."""

    def __init__(self, total: int, console: Console) -> None:
        self._console, self._total = console, total
        self._done = self._failed = 0
        self._reward = 0.0
        self._started = self._told = time.monotonic()
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
            disable=not console.is_terminal,
        )
        self._task: TaskID = self._bar.add_task("rollouts", total=total, rate="", reward="", failed="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def add(self, ended: Outcome) -> None:
        """Counts one ended rollout."""
        self._done += 1
        if ended.reward is None:
            self._failed += 1
        else:
            self._reward += ended.reward
        now = time.monotonic()
        last = self._done == self._total
        if self._console.is_terminal:
            if last or now - self._told > 0.1:  # noqa: PLR2004 - as often as an eye can follow
                self._told = now
                fields = self._fields(now)
                self._bar.update(
                    self._task,
                    completed=self._done,
                    rate=fields["rate"],
                    reward=fields["reward"],
                    failed=fields["failed"],
                )
        elif last or now - self._told > PLAIN_EVERY_S:
            self._told = now
            told = " · ".join(text for text in self._fields(now).values() if text)
            self._console.print(f"{self._done}/{self._total} rollouts · {told}", highlight=False)

    def _fields(self, now: float) -> dict[str, str]:
        scored = self._done - self._failed
        return {
            "rate": f"{self._done / max(now - self._started, 1e-9):.1f}/s",
            "reward": f"mean reward {self._reward / scored:.3f}" if scored else "",
            "failed": f"{self._failed} failed" if self._failed else "",
        }
