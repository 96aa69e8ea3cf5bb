"""How do two pieces of JSON differ: where, and in which words?

Called by `diff` and `whatif`. Pure. Lists are aligned by their items, so that one more item is one addition; texts, and
JSON within texts as a tool call's arguments are, are compared word by word.
"""

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, Literal, NamedTuple

import msgspec

Op = Literal["same", "removed", "added"]

_WORDS: Final = re.compile(r"\s+|\w+|[^\w\s]")
_LONGEST: Final = 20_000
"""Words up to which two texts are compared word by word; longer ones only from their common beginning to their common
end, since the comparison takes a time that grows with the square."""
_ENCODER: Final = msgspec.json.Encoder(order="sorted")


class Piece(NamedTuple):
    """A stretch of one text or of both."""

    op: Op
    text: str


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One place at which they differ."""

    path: str
    """Like `input.2.content`; where the items of a list were aligned, the place in the one that has it."""
    kind: Literal["changed", "removed", "added"]
    was: msgspec.Raw = msgspec.Raw(b"null")
    now: msgspec.Raw = msgspec.Raw(b"null")
    words: tuple[Piece, ...] = ()
    """Of two texts, their words."""


def changes(one: bytes, other: bytes, ignore: frozenset[str] = frozenset()) -> list[Change]:
    """Where two JSON values differ; empty where they do not. Fields named in `ignore` count at no depth."""
    return list(_changes(_decoded(one), _decoded(other), "", ignore))


def word_pieces(one: str, other: str) -> tuple[Piece, ...]:
    """Two texts as stretches of words that are the same, removed, or added."""
    return tuple(pieces(_WORDS.findall(one), _WORDS.findall(other), "".join))


def pieces(one: Sequence[Any], other: Sequence[Any], told: Any) -> Iterator[Piece]:
    """Two sequences as stretches; `told` makes the text of one."""
    begin = _common(one, other)
    rest = min(len(one), len(other)) - begin
    end = _common(one[::-1], other[::-1], rest)
    if begin:
        yield Piece("same", told(one[:begin]))
    was, now = one[begin : len(one) - end], other[begin : len(other) - end]
    if max(len(was), len(now)) > _LONGEST:
        blocks: Sequence[tuple[str, int, int, int, int]] = [("replace", 0, len(was), 0, len(now))]
    else:
        blocks = SequenceMatcher(None, was, now, autojunk=False).get_opcodes()
    for what, a, b, c, d in blocks:
        if what == "equal":
            yield Piece("same", told(was[a:b]))
            continue
        if b > a:
            yield Piece("removed", told(was[a:b]))
        if d > c:
            yield Piece("added", told(now[c:d]))
    if end:
        yield Piece("same", told(one[len(one) - end :]))


def _common(one: Sequence[Any], other: Sequence[Any], limit: int | None = None) -> int:
    most = min(len(one), len(other)) if limit is None else limit
    return next((place for place in range(most) if one[place] != other[place]), most)


def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data.decode(errors="replace")


def _changes(one: Any, other: Any, path: str, ignore: frozenset[str]) -> Iterator[Change]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in {**one, **other}:
            if key not in ignore:
                yield from _entry(one, other, key, f"{path}.{key}" if path else key, ignore)
    elif isinstance(one, list) and isinstance(other, list):
        yield from _items(one, other, path, ignore)
    elif isinstance(one, str) and isinstance(other, str):
        if one != other:
            inner = _inner(one), _inner(other)
            deeper = list(_changes(*inner, path, ignore)) if None not in inner else []
            yield from deeper or [_change(path, "changed", one, other, word_pieces(one, other))]
    elif one != other or type(one) is not type(other):
        yield _change(path, "changed", one, other)


def _entry(one: dict[str, Any], other: dict[str, Any], key: str, path: str, ignore: frozenset[str]) -> Iterator[Change]:
    if key not in other:
        yield _change(path, "removed", one[key], None)
    elif key not in one:
        yield _change(path, "added", None, other[key])
    else:
        yield from _changes(one[key], other[key], path, ignore)


def _items(one: list[Any], other: list[Any], path: str, ignore: frozenset[str]) -> Iterator[Change]:
    keys = [[_ENCODER.encode(_without(item, ignore)) for item in items] for items in (one, other)]
    for what, a, b, c, d in SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_opcodes():
        if what == "equal":
            continue
        paired = min(b - a, d - c)
        for place in range(paired):
            yield from _changes(one[a + place], other[c + place], f"{path}.{c + place}".lstrip("."), ignore)
        for place in range(a + paired, b):
            yield _change(f"{path}.{place}".lstrip("."), "removed", one[place], None)
        for place in range(c + paired, d):
            yield _change(f"{path}.{place}".lstrip("."), "added", None, other[place])


def _without(value: Any, ignore: frozenset[str]) -> Any:
    if not ignore:
        return value
    if isinstance(value, dict):
        return {key: _without(inner, ignore) for key, inner in value.items() if key not in ignore}
    return [_without(inner, ignore) for inner in value] if isinstance(value, list) else value


def _inner(text: str) -> Any:
    """JSON that stands in a text, where it is an object."""
    if not text.startswith("{"):
        return None
    found = _decoded(text.encode(errors="replace"))
    return found if isinstance(found, dict) else None


def _change(
    path: str, kind: Literal["changed", "removed", "added"], was: Any, now: Any, words: tuple[Piece, ...] = ()
) -> Change:
    encoded = msgspec.json.encode
    return Change(path=path, kind=kind, was=msgspec.Raw(encoded(was)), now=msgspec.Raw(encoded(now)), words=words)
