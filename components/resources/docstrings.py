"""What does a Google-style docstring say of a function and of its parameters?

Called where a tool's schema is made. Pure text work: it knows neither signatures nor schemas.
"""

import inspect
import re
from typing import Final, NamedTuple

_SECTIONS: Final = frozenset(
    {"args", "arguments", "parameters", "returns", "return", "yields", "raises", "example", "examples", "note", "notes"}
)
_PARAMETERS: Final = frozenset({"args", "arguments", "parameters"})
_PARAMETER: Final = re.compile(r"(?P<name>\*{0,2}\w+)\s*(?:\([^)]*\))?\s*:\s*(?P<text>.*)")


class Docstring(NamedTuple):
    """A docstring, taken apart."""

    description: str
    """All that stands before the first section, paragraphs kept, line breaks within them joined."""
    parameters: dict[str, str]
    """The entries of `Args:`, in their order."""


def parse(text: str) -> Docstring:
    """The parts of a docstring as it stands in the source."""
    lines = inspect.cleandoc(text).splitlines()
    headings = [(number, name) for number, line in enumerate(lines) if (name := _section(line))]
    first = headings[0][0] if headings else len(lines)
    parameters: dict[str, str] = {}
    ends = [number for number, _ in headings[1:]] + [len(lines)]
    for (start, name), end in zip(headings, ends, strict=False):
        if name in _PARAMETERS:
            parameters.update(_parameters(lines[start + 1 : end]))
    return Docstring(_joined(lines[:first]), parameters)


def _section(line: str) -> str | None:
    name = line[:-1].lower() if line.endswith(":") else ""
    return name if name in _SECTIONS else None


def _parameters(lines: list[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    indent: int | None = None
    for line in lines:
        if not line.strip():
            continue
        depth = len(line) - len(line.lstrip())
        if depth == 0:
            break
        indent = depth if indent is None else indent
        match = _PARAMETER.fullmatch(line.strip()) if depth <= indent else None
        if match:
            current = found.setdefault(match["name"].lstrip("*"), [])
            current.append(match["text"])
        elif current is not None:
            current.append(line.strip())
    return {name: " ".join(part for part in parts if part) for name, parts in found.items()}


def _joined(lines: list[str]) -> str:
    paragraphs = "\n".join(lines).strip().split("\n\n")
    return "\n".join(" ".join(line.strip() for line in paragraph.splitlines()) for paragraph in paragraphs if paragraph)
