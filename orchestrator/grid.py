"""How is a table written so that no name in it is cut or broken?

Names stand on the left, figures in columns on the right; a cell may have several lines. Where a name leaves no room
for its figures, they stand below it. Called by the commands and the report that show tables.
"""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

from rich.text import Text

_GAP: Final = 2


def grid(headings: Sequence[str], rows: Sequence[Sequence[str | Text]], width: int) -> Text:
    """The rows below their headings, in `width` columns if the figures alone fit; each row has a cell a heading."""
    cells = [[_lines(cell) for cell in row] for row in (headings, *rows)]
    first, *figures = (max(_width(cell) for cell in column) for column in zip(*cells, strict=True))
    taken = sum(figures) + _GAP * len(figures)
    fits = first + taken <= width
    left = first if fits else max(_width(cells[0][0]), width - taken, 0)
    shown = Text(no_wrap=True, overflow="ignore")
    for place, (names, *columns) in enumerate(cells):
        if _width(names) > left:
            shown.append_text(Text("\n").join(names)).append("\n")
        beside = names if _width(names) <= left else []
        for name, *line in zip_longest(beside, *columns, fillvalue=Text()):
            whole = _padded(name, left)
            for part, size in zip(line, figures, strict=True):
                whole.append(" " * (_GAP + size - part.cell_len)).append_text(part)
            whole.rstrip()
            shown.append_text(whole).append("\n")
        if place == 0:
            shown.stylize("bold")
            shown.append("─" * (left + taken) + "\n", style="dim")
    shown.right_crop(1)
    return shown


def _lines(cell: str | Text) -> list[Text]:
    return list((Text(cell) if isinstance(cell, str) else cell).split("\n", allow_blank=True))


def _width(lines: Sequence[Text]) -> int:
    return max(line.cell_len for line in lines)


def _padded(text: Text, size: int) -> Text:
    return Text().append_text(text).append(" " * (size - text.cell_len))
