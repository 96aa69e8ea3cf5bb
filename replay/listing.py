"""Draws lists: rollouts, runs, and what `verify` found.

Called by the commands. Rows come as a stream and are printed as they come; the widths of the columns are those of the
first rows.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from replay.page import counted, safe
from replay.rows import Row
from replay.runs import RunRow
from replay.story import number, seconds

SIZED_BY: Final = 100
"""Rows that are looked at for the widths."""


class Column(NamedTuple):
    """One column of rollouts."""

    title: str
    text: Callable[[Row], str]
    right: bool = False
    need: int = 0
    """How soon it is left out on a narrow terminal: the largest first, 0 never."""


def _count(value: int | None) -> str:
    return "" if value is None else str(value)


def _tokens(row: Row) -> str:
    if row.input_tokens is None or row.output_tokens is None:
        return ""
    return f"{row.input_tokens + row.output_tokens:,}"


COLUMNS: Final = (
    Column("rollout", lambda row: row.rollout_id),
    Column("agent", lambda row: row.agent, need=1),
    Column("environment", lambda row: row.environment, need=6),
    Column("reward", lambda row: "" if row.reward is None else number(row.reward), right=True),
    Column("outcome", lambda row: f"{row.outcome}: {row.error}" if row.error else row.outcome),
    Column("turns", lambda row: _count(row.turns), right=True, need=2),
    Column("tools", lambda row: _count(row.tool_calls), right=True, need=3),
    Column("tokens", _tokens, right=True, need=4),
    Column("time", lambda row: "" if row.duration_s is None else seconds(row.duration_s), right=True),
    Column("started", lambda row: f"{row.started:%m-%d %H:%M:%S}", need=5),
)
_RUN_COLUMNS: Final[dict[str, Literal["left", "right"]]] = {
    "run": "left",
    "state": "left",
    "completed": "right",
    "failed": "right",
    "reward": "right",
    "time": "right",
    "started": "left",
}
_GAP: Final = "  "


class RowTable:
    """Prints rollouts one line each, and what they come to at the end."""

    def __init__(self, console: Console, limit: int | None) -> None:
        """Prints at most `limit` rows; all are counted."""
        self._console, self._limit = console, limit
        self._waiting: list[Row] = []
        self._layout: list[tuple[Column, int]] = []
        self._shown = self._seen = self._failed = self._flying = 0
        self._rewards = 0.0
        self._scored = 0

    def add(self, row: Row) -> None:
        """Takes one row."""
        self._seen += 1
        if row.reward is not None:
            self._scored += 1
            self._rewards += row.reward
        self._failed += row.outcome in ("failed", "cancelled")
        self._flying += row.outcome == "in flight"
        if self._limit is not None and self._shown + len(self._waiting) >= self._limit:
            return
        if self._layout:
            self._print(row)
            return
        self._waiting.append(row)
        if len(self._waiting) == SIZED_BY:
            self._flush()

    def end(self) -> None:
        """Prints what waits, and the totals."""
        self._flush()
        if not self._seen:
            self._console.print("no rollouts")
            return
        told = [counted(self._seen, "rollout")]
        if self._scored:
            told.append(f"mean reward {number(self._rewards / self._scored)}")
        if self._failed:
            told.append(f"{self._failed:,} failed")
        if self._flying:
            told.append(f"{self._flying:,} in flight")
        self._console.print(Text(", ".join(told), style="bold"))
        if (left := self._seen - self._shown) > 0:
            self._console.print(Text(f"the first {self._shown:,} are shown, {left:,} are not: --limit 0", style="dim"))

    def _flush(self) -> None:
        if not self._waiting:
            return
        self._layout = layout(self._waiting, self._console.width)
        heading = Text(_GAP.join(_fit(column.title, width, column.right) for column, width in self._layout))
        self._put(Text(heading.plain.rstrip(), style="bold dim"))
        for row in self._waiting:
            self._print(row)
        self._waiting.clear()

    def _print(self, row: Row) -> None:
        self._shown += 1
        line = Text()
        for place, (column, width) in enumerate(self._layout):
            style = _style(column.title, row)
            line.append(_GAP if place else "")
            line.append(_fit(safe(column.text(row)), width, column.right), style=style)
        line.rstrip()
        self._put(line)

    def _put(self, line: Text) -> None:
        self._console.print(line, no_wrap=True, overflow="ignore", crop=False, highlight=False)


def layout(rows: Sequence[Row], width: int) -> list[tuple[Column, int]]:
    """The columns that fit, with their widths; the least needed ones are left out."""
    sized = [(c, max(len(c.title), *(len(c.text(row)) for row in rows))) for c in COLUMNS]
    while sum(size for _, size in sized) + len(_GAP) * (len(sized) - 1) > width:
        least = max(sized, key=lambda entry: entry[0].need)
        if least[0].need == 0:
            break
        sized.remove(least)
    return sized


def _fit(text: str, width: int, right: bool) -> str:
    return f"{text:>{width}}" if right else f"{text:<{width}}"


def _style(title: str, row: Row) -> str:
    if title == "outcome":
        return {"completed": "green", "in flight": "yellow"}.get(row.outcome, "red")
    return {"rollout": "bold", "reward": "bold"}.get(title, "")


def draw_runs(runs: Sequence[RunRow], console: Console) -> None:
    """Prints runs, one line each."""
    table = Table(box=None, header_style="bold dim", pad_edge=False)
    for heading, justify in _RUN_COLUMNS.items():
        table.add_column(heading, justify=justify, no_wrap=True)
    for run in runs:
        elsewhere = f"\n  {run.where}" if run.where and Path(run.where).name != run.run_id else ""
        table.add_row(
            Text.assemble((run.run_id, "bold"), (safe(elsewhere), "dim")),
            run.state,
            _count(run.completed),
            _count(run.failed),
            "" if run.mean_reward is None else number(run.mean_reward),
            "" if run.wall_s is None else seconds(run.wall_s),
            f"{run.started:%m-%d %H:%M}",
        )
    console.print(table, markup=False)
