"""Which columns can a list of rollouts have, and which rollouts come first?

Called by `replay list`; how a column is drawn, `listing` says. What it is called, its filter and its order are called
too (`ui.filters`).
"""

from collections.abc import Callable, Sequence
from typing import Final, cast

from replay.errors import Misused
from replay.listing import ROLLOUTS, Column
from replay.page import number, seconds
from replay.ui.entries import Entry

_CUT: Final = 4
"""So many times the rows that are wanted are kept before they are sorted."""


def columns(names: str | None) -> Sequence[Column[Entry]]:
    """The columns with these titles, separated by commas; those of every list by default. Raises `Misused`."""
    usual = cast("Sequence[Column[Entry]]", ROLLOUTS)
    if names is None:
        return usual
    known = {column.title: column for column in (*usual, *MORE)}
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in known:
            raise Misused(f"--columns: there is no column {name!r}; there are: {', '.join(known)}")
    return [known[name]._replace(need=0) for name in wanted]


class Top:
    """The first rows of many by a key, of which only so many are kept; without a limit all."""

    def __init__(self, key: Callable[[Entry], float | str | None], limit: int | None, *, descending: bool) -> None:
        self._key, self._limit, self._descending = key, limit, descending
        self._rows: list[Entry] = []

    def add(self, row: Entry) -> None:
        """Takes one."""
        self._rows.append(row)
        if self._limit is not None and len(self._rows) > _CUT * self._limit:
            self._rows = self.rows

    @property
    def rows(self) -> list[Entry]:
        """Those that come first; those without a value come last."""
        valued = [row for row in self._rows if self._key(row) is not None]
        valued.sort(key=lambda row: self._key(row) or 0, reverse=self._descending)
        return [*valued, *(row for row in self._rows if self._key(row) is None)][: self._limit]


def _version(row: Entry) -> str:
    if row.policy is None:
        return ""
    oldest, newest = row.policy
    return str(oldest) if oldest == newest else f"{oldest}–{newest}"  # noqa: RUF001 - a range


def _revised(row: Entry) -> str:
    return f"{number(row.first_reward)} → {number(row.reward)}" if row.revisions else ""


MORE: Final[Sequence[Column[Entry]]] = (
    Column("run", lambda row: row.run_id),
    Column("task", lambda row: str(row.task_index), right=True),
    Column("index", lambda row: str(row.rollout_index), right=True),
    Column("text", lambda row: row.task),
    Column("group", lambda row: row.group),
    Column("version", _version, right=True),
    Column("revised", _revised),
    Column("parent", lambda row: row.parent),
    Column("error", lambda row: row.error),
    Column("in", lambda row: "" if row.input_tokens is None else f"{row.input_tokens:,}", right=True),
    Column("out", lambda row: "" if row.output_tokens is None else f"{row.output_tokens:,}", right=True),
    Column("queued", lambda row: "" if row.queue_s is None else seconds(row.queue_s), right=True),
    Column("attempt", lambda row: str(row.attempt or ""), right=True),
    Column("adoptions", lambda row: str(row.adoptions or ""), right=True),
)
