"""A window of the table of rollouts: filtered and sorted here, so that a browser holds only what it shows.

Which rollouts fit a question is remembered, so scrolling costs a slice. Called by the server.
"""

import time
from typing import Final
from weakref import WeakKeyDictionary

import msgspec

from replay.ui.entries import Entry
from replay.ui.filters import filter_of, key_of
from replay.ui.library import Opened
from replay.ui.shelf import Shelf
from replay.ui.worked import Worked

LIMIT: Final = 500
"""Rows of one window at most."""
_REMEMBERED: Final = 6


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the rollouts that fit."""

    version: int
    total: int
    """Rollouts of the run."""
    matched: int
    offset: int
    rows: list[Entry]


class Around(msgspec.Struct, frozen=True, kw_only=True):
    """Where a rollout stands among those that fit."""

    position: int | None
    """From 0; None where it is not among them."""
    matched: int
    before: str | None
    after: str | None


class _Found(msgspec.Struct):
    total: int
    rows: list[Entry]
    places: dict[str, int] | None = None


class Tables:
    """Answers questions about the rollouts of open runs."""

    def __init__(self) -> None:
        self._found: WeakKeyDictionary[Shelf, dict[tuple[str, str, str], Worked[_Found]]] = WeakKeyDictionary()

    def window(self, run: Opened, words: str, order: str, offset: int, limit: int) -> Window:
        """The rows from `offset` on. Raises `Misused` where the filter or the order makes no sense."""
        worked = self._find(run, words, order)
        found = worked.value
        rows = found.rows[offset : offset + min(limit, LIMIT)]
        return Window(version=worked.version, total=found.total, matched=len(found.rows), offset=offset, rows=rows)

    def around(self, run: Opened, words: str, order: str, rollout_id: str) -> Around:
        """The place of one rollout, and its neighbours. Raises as `window` does."""
        found = self._find(run, words, order).value
        if found.places is None:
            found.places = {row.rollout_id: place for place, row in enumerate(found.rows)}
        place = found.places.get(rollout_id)
        if place is None:
            return Around(position=None, matched=len(found.rows), before=None, after=None)
        return Around(
            position=place,
            matched=len(found.rows),
            before=found.rows[place - 1].rollout_id if place else None,
            after=found.rows[place + 1].rollout_id if place + 1 < len(found.rows) else None,
        )

    def _find(self, run: Opened, words: str, order: str) -> Worked[_Found]:
        known = self._found.setdefault(run.shelf, {})
        asked = (run.run_id, words, order)
        found = known.pop(asked, None)
        if found is None or not found.serves(run.shelf.version, changing=run.shelf.changing):
            began, version = time.monotonic(), run.shelf.version
            found = Worked(_find(run, words, order), version, began)
        known[asked] = found
        while len(known) > _REMEMBERED:
            del known[next(iter(known))]
        return found


def rows_of(run: Opened) -> list[Entry]:
    """All rollouts of a run."""
    if run.alone:
        return run.shelf.entries
    return [row for row in run.shelf.entries if row.run_id == run.run_id]


def _find(run: Opened, words: str, order: str) -> _Found:
    rows = rows_of(run)
    kept = filter(filter_of(words), rows) if words.strip() else rows
    return _Found(total=len(rows), rows=_sorted(list(kept), order or "started"))


def _sorted(rows: list[Entry], order: str) -> list[Entry]:
    """Sorted by a column, or against it with `-`; rows that have nothing there come last, either way."""
    key, down = key_of(order.removeprefix("-")), order.startswith("-")
    keyed = [(value, place) for place, row in enumerate(rows) if (value := key(row)) is not None]
    keyed.sort(key=lambda pair: pair[0], reverse=down)
    have = [rows[place] for _, place in keyed]
    return have + [row for row in rows if key(row) is None] if len(have) < len(rows) else have
