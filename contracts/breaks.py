"""Why do a model call's tokens not go on from those of the call before it? Pure.

A conversation is expected to repeat what was said, token for token. Where it does not, `contracts.samples` begins
another branch and asks here for the reason. It is read off the items and settings of the requests first, and off the
tokens where these agree. A reason is for people and counters: no sample depends on it.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Literal

import msgspec
import numpy as np

from contracts.call_tokens import CallTokens, Ids, ModelEvents, joined
from contracts.contexts import Context, ModelCalls, ModelRequest, asked, read_request
from contracts.errors import ContractError

BreakKind = Literal[
    "template",  # the same items, and the chat template has written earlier ones differently, or left some out
    "retokenized",  # the same items, and what was sampled has come back as other tokens
    "edited",  # an earlier item is another one now, or the instructions are; what stands behind it is in its place
    "compacted",  # earlier items were dropped, or summed up by fewer: what stood behind them has moved to the front
    "tools_changed",  # the same items, and other tools are offered
    "unknown",
]

_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_WINDOW: Final = 8
"""Tokens that have to agree after a gap, for what is missing there to count as left out and not as written anew."""


class Break(msgspec.Struct, frozen=True, kw_only=True):
    """A call whose tokens do not go on from those of the call that its conversation goes on from."""

    call: str
    """Key of the call that begins a branch."""
    kind: BreakKind
    before: str
    """Key of the call whose tokens it should have begun with."""
    place: int
    """Tokens that the two have in common."""


class Conversation:
    """The items of a rollout's model calls."""

    def __init__(self, events: ModelEvents) -> None:
        """Raises `BlobMissing`."""
        self._requests = {key: events.data(found.event) for key, found in events.requests.items()}
        self._replies = {key: events.data(found.event) for key, found in events.replies.items()}
        self._calls = ModelCalls(self._requests, self._replies)
        self._known: dict[str, Sequence[bytes] | None] = {}

    def broken(self, call: CallTokens, earlier: Sequence[CallTokens], sampled: Sequence[range]) -> Break | None:
        """Why the call does not go on from what was said; `earlier` are the calls of its model before it, in order.

        None where nothing is broken: it does go on, or it starts a conversation of its own, or asks again from an
        earlier point. `sampled` are the places of all that was sampled in the tokens of the last earlier call of its
        own branch of the agent's code.
        """
        path = branch_of(call.key)
        last = next((each for each in reversed(earlier) if branch_of(each.key) == path), None)
        prompt = call.prompt_ids()
        if last is not None and call.goes_on_from(last):
            return None
        context = self._asked(call.key)
        there = self._said(last.key) if last is not None else None
        if context is None or (last is not None and there is None):
            return _break(call, "unknown", last, prompt) if last is not None else None
        items = [bytes(item) for item in context.items]
        if last is not None and there is not None and (kind := self._edited(items, there)) is not None:
            return _break(call, kind, last, prompt)
        before = max(reversed(earlier), key=lambda each: self._repeated(items, each.key), default=None)
        if before is None or not self._repeated(items, before.key) or call.goes_on_from(before):
            return None
        return _break(call, self._rendered(context, call, before, sampled if before is last else ()), before, prompt)

    def _edited(self, items: Sequence[bytes], there: Sequence[bytes]) -> BreakKind | None:
        """Whether the items are those that were there with something changed, rather than another way from there."""
        common = _common(items, there)
        left, new = there[common:], items[common:]
        if not left or not new or not set(items) & set(there):
            return None
        repeated = max((self._repeated(items, key) for key in self._replies), default=0)
        if repeated > common or (repeated == common and not set(left) & set(new)):
            return None  # it goes on from where an earlier reply ended
        return _changed(left, new)

    def _repeated(self, items: Sequence[bytes], call: str) -> int:
        """How many items of a call and its reply are repeated; 0 where it is not all of them."""
        said = self._said(call) or ()
        return len(said) if items[: len(said)] == said else 0

    def _rendered(self, here: Context, call: CallTokens, before: CallTokens, sampled: Sequence[range]) -> BreakKind:
        """The kind where the items agree."""
        there = self._asked(before.key)
        if there is not None:
            if here.settings.get("tools") != there.settings.get("tools"):
                return "tools_changed"
            if here.settings.get("instructions") != there.settings.get("instructions"):
                return "edited"
        if call.template != before.template:
            return "template"
        if call.tokenizer != before.tokenizer:
            return "retokenized"
        return _tokens_differ(call.prompt_ids(), before, sampled)

    def _asked(self, call: str) -> Context | None:
        """Settings and input of a call; None where it has no input, or it cannot be read."""
        try:
            request = read_request(self._requests[call])
            cited = self._calls.context(request.cited.call) if request.cited is not None else None
            return asked(request, cited) or _of_text(request)
        except (KeyError, ContractError, msgspec.DecodeError):
            return None

    def _said(self, call: str) -> Sequence[bytes] | None:
        """The items of a call's input and reply."""
        if call not in self._known:
            context = self._answered(call)
            self._known[call] = None if context is None else [bytes(item) for item in context.items]
        return self._known[call]

    def _answered(self, call: str) -> Context | None:
        """The context of a call and its reply; None as for `_asked`."""
        with suppress(ContractError, msgspec.DecodeError):
            return self._calls.context(call)
        with suppress(KeyError, msgspec.DecodeError):  # what asks with a text is in no context that others cite
            context = self._asked(call)
            return None if context is None else context.and_reply(self._replies[call])
        return None


def _of_text(request: ModelRequest) -> Context | None:
    """What is asked with a text as the input: one message of the user, as `user_message` writes it."""
    fields = _FIELDS.decode(request.request)
    text = bytes(fields.pop("input", b""))
    if not text.startswith(b'"'):
        return None
    return Context(fields, [msgspec.Raw(b'{"role":"user","content":' + text + b',"type":"message"}')])


def branch_of(key: str) -> str:
    """The branch of an agent's code that made a call: its key without the number."""
    return key.rpartition("_")[0]


def _break(call: CallTokens, kind: BreakKind, before: CallTokens, prompt: Ids) -> Break:
    return Break(call=call.key, kind=kind, before=before.key, place=_agreeing(prompt, joined(before.whole)))


def _changed(left: Sequence[bytes], new: Sequence[bytes]) -> BreakKind:
    """Whether items were dropped, or replaced one for one; `left` and `new` is what follows the common items.

    The last item that is still there decides, of those that have an ID: nothing was dropped before it unless it has
    moved to the front. What came after it says nothing, since a conversation may go back and go on from there. Where
    none is, the first item that is another one now is known by its ID, or items without one decide: one in its place
    is enough, since any other may have been said anew. Where no item is still there, several count as dropped.
    """
    before = set(left)
    kept = [place for place, item in enumerate(new) if item in before]
    known = [place for place in kept if _names(new[place])][-1:]
    if not known and _names(left[0]) & _names(new[0]):
        return "edited"
    if not kept:
        return "compacted" if len(left) > 1 else "edited"
    places = known or kept
    moved = any(new[place] in left[place + 1 :] for place in places)
    in_place = any(left[place : place + 1] == new[place : place + 1] for place in places)
    return "compacted" if moved and not in_place else "edited"


class _Item(msgspec.Struct):
    type: str | None = None
    id: str | None = None
    call_id: str | None = None


_ITEM: Final = msgspec.json.Decoder(_Item)


def _names(item: bytes) -> set[tuple[str | None, str]]:
    """By what an item is known, whatever its content is: its own ID, and that of its call."""
    try:
        found = _ITEM.decode(item)
    except msgspec.DecodeError:
        return set()
    return {(found.type, name) for name in (found.id, found.call_id) if name}


def _tokens_differ(prompt: Ids, before: CallTokens, sampled: Sequence[range]) -> BreakKind:
    """Whether tokens were left out or put in, or what was sampled is written with other tokens."""
    there = joined(before.whole)
    place = _agreeing(prompt, there)
    here, rest = prompt[place:], there[place:]
    if _follows(here, rest) or _follows(rest, here):
        return "template"
    last = range(before.prompt_length, before.length)
    return "retokenized" if any(place in stretch for stretch in (*sampled, last)) else "template"


def _agreeing(left: Ids, right: Ids) -> int:
    """How many tokens two sequences have in common at their start."""
    shorter = min(len(left), len(right))
    differing = np.flatnonzero(left[:shorter] != right[:shorter])
    return int(differing[0]) if len(differing) else shorter


def _follows(window: Ids, tokens: Ids) -> bool:
    """Whether the first tokens of `window` stand somewhere later in `tokens`."""
    wanted = window[:_WINDOW]
    if len(wanted) < _WINDOW or len(tokens) <= _WINDOW:
        return False
    views = np.lib.stride_tricks.sliding_window_view(tokens, _WINDOW)
    return bool((views == wanted).all(axis=1).any())


def _common(left: Sequence[bytes], right: Sequence[bytes]) -> int:
    """How many elements two sequences have in common at their start."""
    for place, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return place
    return min(len(left), len(right))
