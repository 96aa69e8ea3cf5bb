"""Which tokens stand for what was said in a rollout? A model worker's memory of the calls that it answered. Pure.

A *place* is a point in a conversation: a digest of the settings that a chat template shows and of the items up to it.
The place after a call's reply has that call's tokens. A request that comes by such a place must have a prompt that
begins with them. Used by `captures`, which fills in from the log what is not here.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

REMEMBERED: Final = 128 * 1024 * 1024
"""Bytes of token IDs that a worker keeps."""

_UNSEEN: Final = frozenset(
    {
        "input", "model", "temperature", "top_p", "top_k", "min_p", "max_output_tokens", "seed", "frequency_penalty",
        "presence_penalty", "logit_bias", "stop", "include", "top_logprobs", "metadata", "store", "stream",
        "stream_options", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "user",
        "max_tool_calls", "truncation", "background",
    }
)  # fmt: skip
"""Settings that do not change what the model reads. Another one that differs makes another conversation."""
_NULL: Final = msgspec.Raw(b"null")
_WRITTEN: Final = frozenset({"function_call", "custom_tool_call", "reasoning"})

_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_INPUT: Final = msgspec.json.Decoder(str | list[dict[str, Any]])
_SORTED: Final = msgspec.json.Encoder(order="deterministic")


class _Reply(msgspec.Struct):
    output: list[dict[str, Any]] = []


_REPLY: Final = msgspec.json.Decoder(_Reply)


class Said(NamedTuple):
    """A request, place by place."""

    places: Sequence[bytes]
    """The place before the first item, and after each."""
    written: int
    """Items up to the last one that a model wrote; 0 where there is none."""


def said(request: bytes) -> Said:
    """The places of a whole Responses request; raises `msgspec.DecodeError`."""
    fields = _FIELDS.decode(request)
    settings = {name: fields[name] for name in sorted(fields) if name not in _UNSEEN and fields[name] != _NULL}
    given = _INPUT.decode(fields["input"]) if "input" in fields else []
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    places, written = [_digest(msgspec.json.encode(settings))], 0
    for number, item in enumerate(items, start=1):
        places.append(_after(places[-1], item))
        if item.get("type") in _WRITTEN or item.get("role") == "assistant":
            written = number
    return Said(places, written)


def place_after(place: bytes, reply: bytes) -> bytes:
    """The place after the output of a reply; raises `msgspec.DecodeError`."""
    for item in _REPLY.decode(reply).output:
        place = _after(place, item)
    return place


def _after(place: bytes, item: Mapping[str, Any]) -> bytes:
    """IDs and status of an item say how it came about, and `message` is what an item is without a type."""
    told = {name: value for name, value in item.items() if name not in ("id", "status")}
    if told.get("type") == "message":
        del told["type"]
    return _digest(place + _SORTED.encode(told))


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


class _Known:
    __slots__ = ("ids", "size")

    def __init__(self, ids: bytes) -> None:
        self.ids, self.size = ids, len(ids)
        """Its tokens are the first `size` bytes of `ids`, which a later call that goes on from it has made longer."""


class _Rollout:
    __slots__ = ("calls", "places")

    def __init__(self) -> None:
        self.calls: dict[str, _Known] = {}
        self.places: dict[bytes, _Known] = {}

    def strands(self) -> Iterable[bytes]:
        """The different token sequences."""
        return {id(known.ids): known.ids for known in self.calls.values()}.values()


class KnownTokens:
    """Prompt and generated tokens of calls, by rollout, packed; the latest rollouts up to `limit` bytes."""

    def __init__(self, limit: int = REMEMBERED) -> None:
        self._limit = limit
        self._rollouts: OrderedDict[str, _Rollout] = OrderedDict()
        self._bytes = 0

    def keep(self, rollout: str, call: str, place: bytes, ids: bytes) -> None:
        """Remembers the tokens of a call whose reply ends at `place`."""
        found = self._rollouts.setdefault(rollout, _Rollout())
        self._rollouts.move_to_end(rollout)
        self._bytes -= sum(map(len, found.strands()))
        outgrown = {id(old) for old in found.strands() if ids.startswith(old)}
        for known in found.calls.values():
            if id(known.ids) in outgrown:
                known.ids = ids
        found.calls[call] = found.places[place] = _Known(ids)
        self._bytes += sum(map(len, found.strands()))
        while self._bytes > self._limit:
            _, gone = self._rollouts.popitem(last=False)
            self._bytes -= sum(map(len, gone.strands()))

    def knows(self, rollout: str, place: bytes) -> bool:
        """Whether the tokens at a place are remembered."""
        return rollout in self._rollouts and place in self._rollouts[rollout].places

    def longest(self, rollout: str, places: Sequence[bytes]) -> tuple[bytes, int] | None:
        """The tokens at the last of `places` that has some, and its index."""
        found = self._rollouts.get(rollout)
        if found is None:
            return None
        for index in range(len(places) - 1, -1, -1):
            if (known := found.places.get(places[index])) is not None:
                return known.ids[: known.size], index
        return None

    def shared(self, rollout: str, prompt: bytes) -> tuple[str, int]:
        """A call whose tokens have the longest start in common with `prompt`, and how many bytes that is."""
        found = self._rollouts.get(rollout)
        best, size = b"", 0
        for strand in found.strands() if found is not None else ():
            if (common := _common(prompt, strand)) > size:
                best, size = strand, common
        for call, known in found.calls.items() if found is not None and size else ():
            if known.ids is best and known.size >= size:
                return call, size
        return "", 0


def _common(left: bytes, right: bytes) -> int:
    """Bytes of whole tokens that two sequences have in common at their start."""
    low, high = 0, min(len(left), len(right)) // 4
    if left[: 4 * high] == right[: 4 * high]:
        return 4 * high
    while high - low > 1:  # the first `low` tokens are equal, the first `high` are not
        middle = (low + high) // 2
        if left[4 * low : 4 * middle] == right[4 * low : 4 * middle]:
            low = middle
        else:
            high = middle
    return 4 * low
