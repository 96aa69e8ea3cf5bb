"""Draws the places at which two pieces of JSON differ.

Called by `whatif` and `diff`. Removed words are red, added ones green; without colours they stand in [-…-] and {+…+}.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from rich.console import Console
from rich.text import Text

from replay.page import Page, safe
from replay.words import Change, Piece

_LONG: Final = 400
"""Characters of a value, or of a stretch that is the same, that are shown."""
_STYLES: Final = {"same": "", "removed": "red", "added": "green"}
_MARKS: Final = {"same": ("", ""), "removed": ("[-", "-]"), "added": ("{+", "+}")}
_VERBS: Final = {"changed": "", "removed": "is gone ", "added": "is new "}


def draw_changes(changes: Sequence[Change], console: Console, margin: str = "", limit: int | None = None) -> None:
    """Writes one paragraph for each change, `limit` of them."""
    page = Page(console)
    for change in changes[:limit]:
        first = Text.assemble(margin, (safe(change.path or "it"), "bold"), " ")
        page.write(Text.assemble((_VERBS[change.kind], "dim"), _told(change)), first=first, rest=f"{margin}  ")
    if limit is not None and (left := len(changes) - limit) > 0:
        page.write(Text(f"and {left:,} more: --json has all", style="dim"), first=margin, rest=margin)


def told_pieces(pieces: Sequence[Piece]) -> Text:
    """Stretches of two texts, as one."""
    text = Text()
    for place, piece in enumerate(pieces):
        shown = safe(piece.text)
        if piece.op == "same" and len(shown) > _LONG // 2:
            before = shown[: _LONG // 4] if place else ""
            after = shown[-_LONG // 4 :] if place < len(pieces) - 1 else ""
            shown = f"{before}…{after}"
        begin, end = _MARKS[piece.op]
        text.append(f"{begin}{shown}{end}", style=_STYLES[piece.op])
    return text


def _told(change: Change) -> Text:
    if change.words:
        return told_pieces(change.words)
    parts = [] if change.kind == "added" else [Piece("removed", _value(change.was))]
    if change.kind != "removed":
        parts.append(Piece("added", _value(change.now)))
    return told_pieces(parts)


def _value(value: msgspec.Raw) -> str:
    text = bytes(value).decode(errors="replace")
    return text if len(text) <= _LONG else f"{text[:_LONG]}… ({len(text):,} characters)"
