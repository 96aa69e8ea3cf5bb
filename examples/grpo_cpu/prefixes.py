"""Whose keys and values does the engine know already? Those of sequences that ended lately, by their tokens.

A prompt mostly begins with what was generated before: with the conversation so far, or with the same tools and the
same words as another. What it has in common with the one that is most like it need not be read again. Only `engine.py`
uses it, for the weights of one version: keys and values of others would make a mixture that no version ever was.
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Sequence
from itertools import takewhile

from examples.grpo_cpu.model import Cache

Tokens = tuple[int, ...]


class Prefixes:
    """Sequences with their keys and values, those used last, up to so many tokens in all."""

    def __init__(self, tokens: int) -> None:
        self._bound, self._held = tokens, 0
        self._caches: OrderedDict[Tokens, Cache] = OrderedDict()
        """[layers, tokens, heads, width of a head] each; used last is last."""
        self._sorted: list[Tokens] = []
        """Neighbours have most in common."""

    def keep(self, tokens: Sequence[int], cache: Cache) -> None:
        """Keeps what belongs to these tokens; gives up what they go on from, and what was not used for longest."""
        key = tuple(tokens)
        place = bisect_left(self._sorted, key)
        if place and key[: len(shorter := self._sorted[place - 1])] == shorter:
            self._drop(shorter)
        if key not in self._caches:
            insort(self._sorted, key)
            self._held += len(key)
        self._caches[key] = cache
        self._caches.move_to_end(key)
        while self._held > self._bound:
            self._drop(next(iter(self._caches)))

    def longest(self, tokens: Sequence[int]) -> tuple[int, Cache | None]:
        """How many of these tokens, from the first on, another sequence has too, and what belongs to that one."""
        key = tuple(tokens)
        place = bisect_left(self._sorted, key)
        found = [(_common(key, near), near) for near in self._sorted[max(place - 1, 0) : place + 1]]
        common, near = max(found, default=(0, ()))
        if not common:
            return 0, None
        self._caches.move_to_end(near)
        return common, self._caches[near]

    def _drop(self, tokens: Tokens) -> None:
        del self._caches[tokens]
        del self._sorted[bisect_left(self._sorted, tokens)]
        self._held -= len(tokens)

    def clear(self) -> None:
        """Forgets all."""
        self._caches.clear()
        self._sorted.clear()
        self._held = 0


def _common(one: Tokens, other: Tokens) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
