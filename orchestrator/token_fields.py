"""How do tokens get onto the items of a response, where users of NeMo Gym look for them?

The last item that a model call put out carries `prompt_token_ids`, `generation_token_ids` and `generation_log_probs`:
all of them, or none. An agent may have dropped, changed or reordered items, so a call's item is the one that is the
same byte for byte; where more than one could be meant, none gets any. Called by `results` for rollouts that have
captures; what an agent itself put under these names is no token of an engine, and is taken away. Pure.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from contracts.call_tokens import CallTokens, ModelEvents
from contracts.events import Event, Recorded

FIELDS: Final = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")


class _Reply(msgspec.Struct):
    output: list[msgspec.Raw] = []


_REPLY: Final = msgspec.json.Decoder(_Reply)
_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def until(ended: Event, recorded: Sequence[Recorded]) -> list[Recorded]:
    """The events up to the rollout's end: what comes after it, a late reply, changes no line."""
    end = next((each.seq for each in recorded if each.event.id == ended.id), None)
    return [each for each in recorded if end is None or each.seq <= end]


def with_tokens(response: msgspec.Raw, recorded: Sequence[Recorded], blobs: Mapping[str, bytes]) -> msgspec.Raw:
    """The Responses object with the tokens of its rollout's model calls on its output items.

    Args:
        response: what the rollout ended with.
        recorded: the events of the rollout.
        blobs: what the model calls among them refer to.

    Raises:
        ContractError: the events contradict each other.
    """
    try:
        fields = _FIELDS.decode(response)
        output = _ITEMS.decode(fields["output"])
    except (KeyError, msgspec.DecodeError):
        return response  # it is no Responses object: that is for whoever reads it to say
    events = ModelEvents(recorded, blobs)
    replies = {key: _items(events.data(each.event)) for key, each in events.replies.items()}
    said = Counter(item for items in replies.values() for item in items)
    there = Counter(bytes(item) for item in output)
    of_item: dict[bytes, CallTokens] = {}
    for call in events.calls().values():
        items = replies[call.key]
        if items and not call.flaw and said[items[-1]] == there[items[-1]] == 1:
            of_item[items[-1]] = call
    fields["output"] = msgspec.Raw(msgspec.json.encode([_marked(item, of_item.get(bytes(item))) for item in output]))
    return msgspec.Raw(msgspec.json.encode(fields))


def _marked(item: msgspec.Raw, call: CallTokens | None) -> msgspec.Raw | dict[str, Any]:
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
        values = (call.prompt_ids(), call.generated, call.logprobs)
        fields |= {name: value.tolist() for name, value in zip(FIELDS, values, strict=True)}
    return fields


def _items(reply: bytes) -> list[bytes]:
    try:
        return [bytes(item) for item in _REPLY.decode(reply).output]
    except msgspec.DecodeError:
        return []
