r"""Where in a text does a model give its final answer? Helpers for verifiers; they score nothing."""

from typing import Final

__all__ = ["last_boxed"]

_BOXED: Final = r"\boxed{"
_DEPTH: Final = {"{": 1, "}": -1}


def last_boxed(text: str) -> str | None:
    r"""The content of the last `\boxed{…}`, braces within it kept; None where there is none or it is not closed."""
    start = text.rfind(_BOXED)
    if start < 0:
        return None
    start += len(_BOXED)
    depth = 1
    for end in range(start, len(text)):
        depth += _DEPTH.get(text[end], 0)
        if depth == 0:
            return text[start:end].strip()
    return None
