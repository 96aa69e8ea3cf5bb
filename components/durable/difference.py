"""Where do two JSON documents differ, and where first?

`matching` uses it to say which argument of a call departed; `replay` for results and in `lint`.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

MAX_SHOWN: Final = 200
_NOTHING: Final = object()


def first_difference(recorded: bytes, made: bytes) -> tuple[str, str, str]:
    """The path of the first field that differs, such as `.input[2].content`, and the JSON of both values there.

    An absent field or item is shown as `nothing`. The path is empty where the documents are equal but for order of
    keys or formatting, or where one is no JSON: then both are shown whole.
    """
    return next(differences(recorded, made))


def differences(recorded: bytes, made: bytes) -> Iterator[tuple[str, str, str]]:
    """All that `first_difference` tells the first of."""
    none = True
    try:
        for found in _differ("", msgspec.json.decode(recorded), msgspec.json.decode(made)):
            none = False
            yield found
    except msgspec.DecodeError:
        pass
    if none:
        yield "", recorded.decode(errors="replace"), made.decode(errors="replace")


def shown(value: str) -> str:
    """A value, cut for a message."""
    return value if len(value) <= MAX_SHOWN else f"{value[:MAX_SHOWN]}… ({len(value)} characters)"


def _differ(path: str, was: Any, now: Any) -> Iterator[tuple[str, str, str]]:
    if isinstance(was, dict) and isinstance(now, dict):
        for key in was | now:
            yield from _differ(f"{path}.{key}", was.get(key, _NOTHING), now.get(key, _NOTHING))
    elif isinstance(was, list) and isinstance(now, list):
        for index in range(max(len(was), len(now))):
            one = was[index] if index < len(was) else _NOTHING
            yield from _differ(f"{path}[{index}]", one, now[index] if index < len(now) else _NOTHING)
    elif was != now or isinstance(was, bool) != isinstance(now, bool):
        yield path, _json(was), _json(now)


def _json(value: Any) -> str:
    return "nothing" if value is _NOTHING else msgspec.json.encode(value).decode()
