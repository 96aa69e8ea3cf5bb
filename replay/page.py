"""How text of any kind gets onto a terminal of any width: wrapping under a margin, cutting, making safe.

Used by whatever draws. What models and tools write goes through `safe` first: no control character of theirs reaches
the terminal. It knows nothing of rollouts.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Literal

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment, Segments
from rich.text import Text

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_WORD = re.compile(r"\s*\S+\s*")
_AT_ONCE = 1000
_SHORT_S = 0.01
"""Durations up to this are told to the tenth of a millisecond."""

Wrap = Literal["words", "anywhere", "never"]
"""Where lines are broken: between words, names and paths being whole; on a terminal also within a word that is too long
for it, for text that need not have spaces; nowhere, for what is laid out already, as tracebacks are."""


def safe(text: str) -> str:
    r"""The text with control characters written out (`\x1b`), line breaks and tabs kept as breaks and spaces."""
    text = text.replace("\r\n", "\n").expandtabs(4)
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def cut(text: str, *, lines: int, characters: int, end: bool = False) -> tuple[str, int]:
    """The beginning of a text, or its `end`, and how many characters were left out."""
    kept = text[-characters:] if end else text[:characters]
    parts = kept.split("\n")
    if len(parts) > lines:
        kept = "\n".join(parts[-lines:] if end else parts[:lines])
    return kept, len(text) - len(kept)


def counted(count: int, noun: str) -> str:
    """`1 rollout`, `2,000 rollouts`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def seconds(value: float) -> str:
    """A duration as a reader takes it in at a glance."""
    if value < 1:
        return f"{value * 1000:.{1 if value < _SHORT_S else 0}f} ms"
    if value < 120:  # noqa: PLR2004 - seconds are read up to two minutes
        return f"{value:.3g} s"
    return f"{int(value // 60)} min {int(value % 60)} s"


def number(value: object) -> str:
    """A reward as a reader takes it in."""
    return f"{value:.4g}" if isinstance(value, int | float) else "none"


class Page:
    """Writes lines under a margin."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.width = console.width

    def blank(self) -> None:
        """An empty line."""
        self._console.print()

    def rule(self) -> None:
        """A line across."""
        self._console.print(Text("─" * self.width, style="dim"))

    def write(
        self,
        text: Text,
        *,
        first: Text | str = "",
        rest: Text | str = "",
        right: Text | None = None,
        wrap: Wrap = "words",
    ) -> None:
        """Wraps `text` under a margin: `first` stands before its first line, `rest` before the others.

        `right` is put at the end of the first line, or on a line of its own where it does not fit.
        """
        margin = Text.assemble(first)
        below = Text.assemble(rest)
        room = max(20, self.width - max(margin.cell_len, below.cell_len))
        lines: list[Text] = []
        for line in _lines(text):
            lines += self._broken(line, room, wrap) or [Text("")]
        if right is not None:
            gap = room - lines[0].cell_len - right.cell_len
            if len(lines) == 1 and gap > 0:
                lines[0] = Text.assemble(lines[0], " " * gap, right)
            else:
                lines.append(Text.assemble(" " * max(0, room - right.cell_len), right))
        self._print([self._ready(Text.assemble(margin, lines[0]))])
        ahead = list(below.render(self._console))
        self._print(
            [*ahead, *self._ready(line)] if line.plain.strip() else self._ready(Text.assemble(below, line))
            for line in lines[1:]
        )

    def _broken(self, line: Text, room: int, wrap: Wrap) -> list[Text]:
        if wrap == "never" or (len(line.plain) <= room and line.plain.isascii()):
            return [line]
        if wrap == "anywhere" and self._console.is_terminal:
            return list(line.wrap(self._console, room, overflow="fold"))
        return list(line.divide(_between_words(line.plain, room)))

    def _ready(self, line: Text) -> list[Segment]:
        line.rstrip()
        if line.spans:
            return list(Text.assemble(line).render(self._console))
        return [Segment(line.plain, self._console.get_style(line.style))]

    def _print(self, lines: Iterable[list[Segment]]) -> None:
        """Many at once: a console's `print` takes longer than a line of a long text."""
        several = iter(lines)
        while some := list(islice(several, _AT_ONCE)):
            segments = [segment for line in some for segment in (*line, Segment.line())]
            self._console.print(Segments(segments), end="", crop=False)


def _lines(text: Text) -> Iterable[Text]:
    if text.spans:
        return text.split("\n", allow_blank=True)
    return (Text(line, text.style) for line in text.plain.split("\n"))


def _between_words(line: str, room: int) -> Iterator[int]:
    """Where a line is broken so that it fits and no word is broken."""
    used = 0
    for word in _WORD.finditer(line):
        if used and used + cell_len(word[0].rstrip()) > room:
            yield word.start()
            used = 0
        used += cell_len(word[0])
