"""How do tokens get onto the items of a response, where users of NeMo Gym look for them?

The last item that a model call put out carries `prompt_token_ids`, `generation_token_ids` and `generation_log_probs`:
all of them, or none. An agent may have dropped, changed or reordered items, so a call's item is the one that is the
same byte for byte. Where calls put out the same item (an engine that gives all its answers one ID), and it is there as
often as they did, each has its own in the order of the calls; else none gets any. Called by `results` for rollouts that
have captures; what an agent itself put under these names is no token of an engine, and is taken away. Pure.
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from contracts.call_tokens import CallTokens, Ids, Logprobs, ModelEvents
from contracts.contexts import ModelCalls
from contracts.events import Recorded
from contracts.rollouts import RolloutResult

FIELDS: Final = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")


Numbers: TypeAlias = Ids | Logprobs


class _Reply(msgspec.Struct):
    output: list[msgspec.Raw] = []


_REPLY: Final = msgspec.json.Decoder(_Reply)
_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def with_tokens(result: RolloutResult, recorded: Sequence[Recorded], blobs: Mapping[str, bytes]) -> msgspec.Raw:
    """The whole response of a result, with the tokens of its rollout's model calls on its output items.

    Args:
        result: what the rollout ended with.
        recorded: its events up to its end.
        blobs: what the model calls among them refer to.

    Raises:
        ContractError: the events contradict each other.
    """
    events = ModelEvents(recorded, blobs)
    replies = {key: events.data(each.event) for key, each in events.replies.items()}
    requests = {key: events.data(each.event) for key, each in events.requests.items()}
    response = ModelCalls(requests, replies).whole_response(result.response, result.cited)
    try:
        fields = _FIELDS.decode(response)
        output = _ITEMS.decode(fields["output"])
    except (KeyError, msgspec.DecodeError):
        return response  # it is no Responses object: that is for whoever reads it to say
    items = {key: _items(reply) for key, reply in replies.items()}
    there = Counter(bytes(item) for item in output)
    said: dict[bytes, deque[CallTokens | None]] = {}
    for call in events.calls().values():
        put_out = items[call.key]
        for place, item in enumerate(put_out, start=1):
            said.setdefault(item, deque()).append(call if place == len(put_out) and not call.flaw else None)
    sure = {item: calls for item, calls in said.items() if len(calls) == there[item]}
    written = _Written()
    marked = [_marked(item, sure[bytes(item)].popleft() if bytes(item) in sure else None, written) for item in output]
    fields["output"] = msgspec.Raw(msgspec.json.encode(marked))
    return msgspec.Raw(msgspec.json.encode(fields))


class _Written:
    """Numbers as JSON, each part of them once: the prompts of a conversation share most of theirs."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Numbers, bytes]] = {}

    def of(self, *parts: Numbers) -> msgspec.Raw:
        """The parts as one list."""
        return msgspec.Raw(b"[" + b",".join(self._text(part) for part in parts if len(part)) + b"]")

    def _text(self, part: Numbers) -> bytes:
        known = self._known.get(id(part))
        if known is None:  # the part is kept, so that no other has its identity
            known = self._known[id(part)] = part, msgspec.json.encode(part.tolist())[1:-1]
        return known[1]


def _marked(item: msgspec.Raw, call: CallTokens | None, written: _Written) -> msgspec.Raw | dict[str, Any]:
    """The item with the call's tokens, or with none."""
    try:
        fields: dict[str, Any] = dict(_FIELDS.decode(item))
    except msgspec.DecodeError:
        return item
    forged = [name for name in FIELDS if name in fields]
    if call is None and not forged:
        return item
    for name in forged:
        del fields[name]
    if call is not None:
        values = written.of(*call.prompt), written.of(call.generated), written.of(call.logprobs)
        fields |= dict(zip(FIELDS, values, strict=True))
    return fields


def _items(reply: bytes) -> list[bytes]:
    try:
        return [bytes(item) for item in _REPLY.decode(reply).output]
    except msgspec.DecodeError:
        return []
