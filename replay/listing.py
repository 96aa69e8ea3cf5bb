"""Draws lists of rollouts and of runs, one line each.

Called by `replay list`. Rows come as a stream and are printed as they come; the widths of the columns are those of the
first rows. A line is never cut or broken: where not all columns fit, the least needed ones are left out.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

from rich.console import Console
from rich.text import Text

from replay.page import counted, number, safe, seconds
from replay.rows import AnyRow, Row, outcome_text
from replay.runs import RunRow

SIZED_BY: Final = 100
"""Rows that are looked at for the widths."""


R = TypeVar("R")


class Column(NamedTuple, Generic[R]):
    """One column."""

    title: str
    text: Callable[[R], str]
    right: bool = False
    need: int = 0
    """How soon it is left out on a narrow terminal: the largest first, 0 never."""
    style: Callable[[R], str] = lambda _: ""


_GAP: Final = "  "


class Lines(Generic[R]):
    """Prints rows one line each, under a heading."""

    def __init__(self, console: Console, columns: Sequence[Column[R]]) -> None:
        self._console, self._columns = console, columns
        self._waiting: list[R] = []
        self._layout: list[tuple[Column[R], int]] = []

    def add(self, row: R) -> None:
        """Prints a row, at the latest when it is the last of those that are looked at for the widths."""
        if self._layout:
            self._print(row)
            return
        self._waiting.append(row)
        if len(self._waiting) == SIZED_BY:
            self.end()

    def end(self) -> None:
        """Prints what waits."""
        if not self._waiting:
            return
        self._layout = layout(self._columns, self._waiting, self._console.width)
        self._put(
            Text(_GAP.join(_fit(column.title, width, column.right) for column, width in self._layout), "bold dim")
        )
        for row in self._waiting:
            self._print(row)
        self._waiting.clear()

    def _print(self, row: R) -> None:
        cells = [
            (_fit(safe(column.text(row)), width, column.right), column.style(row)) for column, width in self._layout
        ]
        self._put(Text(_GAP).join(Text(*cell) for cell in cells))

    def _put(self, line: Text) -> None:
        line.rstrip()
        self._console.print(line, no_wrap=True, overflow="ignore", crop=False, highlight=False)


class RowTable(Generic[AnyRow]):
    """Prints rollouts, and what they come to at the end."""

    def __init__(self, console: Console, limit: int | None, columns: Sequence[Column[AnyRow]]) -> None:
        """Prints at most `limit` rows; all are counted."""
        self._console, self._limit = console, limit
        self._lines = Lines(console, columns)
        self._shown = self._seen = self._failed = self._cancelled = self._flying = 0
        self._rewards = 0.0
        self._scored = 0

    def add(self, row: AnyRow) -> None:
        """Takes one row, and prints it."""
        self.count(row)
        self.show(row)

    def count(self, row: AnyRow) -> None:
        """Takes one row."""
        self._seen += 1
        if row.reward is not None:
            self._scored += 1
            self._rewards += row.reward
        self._failed += row.outcome == "failed"
        self._cancelled += row.outcome == "cancelled"
        self._flying += row.outcome == "in flight"

    def show(self, row: AnyRow) -> None:
        """Prints a row, if there is room."""
        if self._limit is None or self._shown < self._limit:
            self._shown += 1
            self._lines.add(row)

    def end(self) -> None:
        """Prints what waits, and the totals."""
        self._lines.end()
        if not self._seen:
            self._console.print("no rollouts")
            return
        told = [counted(self._seen, "rollout")]
        if self._scored:
            told.append(f"mean reward {number(self._rewards / self._scored)}")
        if self._failed:
            told.append(f"{self._failed:,} failed")
        if self._cancelled:
            told.append(f"{self._cancelled:,} cancelled")
        if self._flying:
            told.append(f"{self._flying:,} in flight")
        self._console.print(Text(", ".join(told), style="bold"))
        if (left := self._seen - self._shown) > 0:
            self._console.print(Text(f"shown: the first {self._shown:,}; {left:,} more with --limit 0", style="dim"))


def draw_runs(runs: Sequence[RunRow], console: Console) -> None:
    """Prints runs; their directories where one has a name of its own, what was cancelled where something was."""
    left_out = {
        *([] if any(map(_directory, runs)) else ["directory"]),
        *([] if any(run.cancelled for run in runs) else ["cancelled"]),
    }
    lines = Lines(console, [column for column in RUNS if column.title not in left_out])
    for run in runs:
        lines.add(run)
    lines.end()


def layout(columns: Sequence[Column[R]], rows: Sequence[R], width: int) -> list[tuple[Column[R], int]]:
    """The columns that fit, with their widths; the least needed ones are left out."""
    sized = [(c, max(len(c.title), *(len(safe(c.text(row))) for row in rows))) for c in columns]
    while sum(size for _, size in sized) + len(_GAP) * (len(sized) - 1) > width:
        least = max(sized, key=lambda entry: entry[0].need)
        if least[0].need == 0:
            break
        sized.remove(least)
    return sized


def _fit(text: str, width: int, right: bool) -> str:
    return f"{text:>{width}}" if right else f"{text:<{width}}"


def _bold(_: object) -> str:
    return "bold"


def _count(value: int | None) -> str:
    return "" if value is None else str(value)


def _number(value: float | None) -> str:
    return "" if value is None else number(value)


def _seconds(value: float | None) -> str:
    return "" if value is None else seconds(value)


def _tokens(row: Row) -> str:
    if row.input_tokens is None or row.output_tokens is None:
        return ""
    return f"{row.input_tokens + row.output_tokens:,}"


def _outcome_style(row: Row) -> str:
    return {"completed": "green", "in flight": "yellow"}.get(row.outcome, "red")


def _state(run: RunRow) -> str:
    if run.state == "ended" or run.ended is None or run.asked is None:
        return run.state
    return f"{run.state} {run.ended:,}/{run.asked:,}"


def _directory(run: RunRow) -> str:
    return run.where if Path(run.where).name != run.run_id else ""


ROLLOUTS: Final[Sequence[Column[Row]]] = (
    Column("rollout", lambda row: row.rollout_id, style=_bold),
    Column("agent", lambda row: row.agent, need=1),
    Column("environment", lambda row: row.environment, need=6),
    Column("reward", lambda row: _number(row.reward), right=True, style=_bold),
    Column("outcome", lambda row: outcome_text(row.outcome, row.error), style=_outcome_style),
    Column("turns", lambda row: _count(row.turns), right=True, need=2),
    Column("tools", lambda row: _count(row.tool_calls), right=True, need=3),
    Column("tokens", _tokens, right=True, need=4),
    Column("duration", lambda row: _seconds(row.duration_s), right=True),
    Column("started", lambda row: f"{row.started:%m-%d %H:%M:%S}", need=5),
)
RUNS: Final[Sequence[Column[RunRow]]] = (
    Column("run", lambda run: run.run_id, style=_bold),
    Column("state", _state),
    Column("done", lambda run: _count(run.completed), right=True, need=2),
    Column("failed", lambda run: _count(run.failed), right=True, need=1),
    Column("cancelled", lambda run: _count(run.cancelled), right=True, need=5),
    Column("reward", lambda run: _number(run.mean_reward), right=True),
    Column("time", lambda run: _seconds(run.wall_s), right=True, need=3),
    Column("started", lambda run: f"{run.started:%m-%d %H:%M}", need=4),
    Column("directory", _directory),
)
