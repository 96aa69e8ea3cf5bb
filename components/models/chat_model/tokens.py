"""Which tokens does an engine's completion speak of? `take_tokens`, for the forms of vLLM, SGLang and NeMo RL. Pure.

What is said twice must agree, and what is said in part is a flaw: nothing is completed from elsewhere. Called by
`ChatModel` before the completion becomes a response, so that no token is left in what an agent reads.

The prompt         `message.prompt_token_ids` (NeMo RL), `prompt_token_ids` beside `choices` (vLLM) or in the choice
                   (SGLang), `sglext.input_ids` (SGLang, its streams too)
Generated          `message.generation_token_ids`, `choice.token_ids` (vLLM), `choice.response_token_ids` (SGLang),
                   `sglext.output_ids` (SGLang: of each choice), `token_id:N` in place of a token's text in
                   `logprobs.content` (vLLM), `choice.meta_info.output_token_logprobs` (SGLang: log-probability, ID,
                   text)
Log-probabilities  `message.generation_log_probs`, `logprobs.content`, `choice.meta_info.output_token_logprobs`
Policy versions    `policy_spans` beside `choices` (version and number of tokens, in order); in `choice.meta_info` or
                   `metadata` `weight_versions` (SGLang: version, start and end of each), where they are numbers; else
                   `weight_version`, which is that of the end of the call
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from pydantic import ValidationError

from components.models.tokens import EngineTokens, packed_tokens
from contracts.base import JsonObject
from contracts.chat import ChoiceLogprobs
from contracts.convert import TOKEN_FIELDS
from contracts.tokens import PolicySpan

_BUNDLE: Final = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
_TOKEN_ID: Final = "token_id:"  # noqa: S105 - how vLLM writes a token
_Found = list[tuple[str, Sequence[Any]]]


class _Flaw(Exception):
    """The completion contradicts itself."""


def take_tokens(completion: JsonObject, *, keep_logprobs: bool, streamed: bool = False) -> EngineTokens:
    """The tokens of a completion, which loses them.

    Args:
        completion: Changed.
        keep_logprobs: The requester has asked for log-probabilities: those stay.
        streamed: It came in parts. Streams are known to leave tokens out, those of a call for example: what was counted
            must be there.
    """
    choice = _first(completion)
    message = choice.get("message")
    message = message if isinstance(message, dict) else {}
    try:
        tokens = _read(completion, choice, message)
        if streamed:
            _check_count(completion, tokens)
    except _Flaw as flaw:
        tokens = EngineTokens(flaw=str(flaw))
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        tokens = EngineTokens(flaw=f"token fields of a form that is not known: {error!r}")
    for part in (completion, choice, message):
        for name in TOKEN_FIELDS & part.keys():
            del part[name]
    if not (keep_logprobs and _readable(choice)):
        choice.pop("logprobs", None)
    return tokens


def _check_count(completion: JsonObject, tokens: EngineTokens) -> None:
    counted, there = (completion.get("usage") or {}).get("completion_tokens"), len(tokens.generated) // 4
    if not tokens.flaw and counted is not None and counted != there:
        raise _Flaw(f"the stream has {there} of {counted} generated tokens")


def _first(completion: JsonObject) -> JsonObject:
    match completion.get("choices"):
        case [dict() as choice]:
            return choice
    return {}


def _read(completion: JsonObject, choice: JsonObject, message: JsonObject) -> EngineTokens:
    meta = choice.get("meta_info") or {}
    triples, entries = meta.get("output_token_logprobs"), _entries(choice)
    sglext = completion.get("sglext") or {}
    bundle = [name for name in _BUNDLE if message.get(name) is not None]
    if bundle and len(bundle) < len(_BUNDLE):
        raise _Flaw(f"the message has {' and '.join(bundle)}, and not all of {', '.join(_BUNDLE)}")
    prompt = _found(
        ("message.prompt_token_ids", message.get("prompt_token_ids")),
        ("prompt_token_ids", completion.get("prompt_token_ids")),
        ("choice.prompt_token_ids", choice.get("prompt_token_ids")),
        ("sglext.input_ids", sglext.get("input_ids")),
    )
    generated = _found(
        ("message.generation_token_ids", message.get("generation_token_ids")),
        ("choice.token_ids", choice.get("token_ids")),
        ("choice.response_token_ids", choice.get("response_token_ids")),
        ("sglext.output_ids", sglext.get("output_ids") and sglext["output_ids"][0]),
        ("logprobs.content", [int(entry["token"][len(_TOKEN_ID) :]) for entry in entries if _is_id(entry)] or None),
        ("meta_info.output_token_logprobs", triples and [triple[1] for triple in triples]),
    )
    logprobs = _found(
        ("message.generation_log_probs", message.get("generation_log_probs")),
        ("logprobs.content", [entry["logprob"] for entry in entries] or None),
        ("meta_info.output_token_logprobs", triples and [triple[0] for triple in triples]),
    )
    for what, found in (("IDs of the prompt's tokens", prompt), ("IDs of the generated tokens", generated)):
        if not found:
            raise _Flaw(f"the engine gave no {what}: was it asked for what it has, and is it new enough?")
    if not logprobs:
        raise _Flaw("the engine gave no log-probabilities of the generated tokens")
    agreed = [_agreed(found) for found in (prompt, generated, logprobs)]
    told = (completion.get("metadata") or {}) | meta
    spans = _spans(completion, told)
    return packed_tokens(*agreed, spans=spans, newest=None if spans else _number(told.get("weight_version")))


def _found(*places: tuple[str, Sequence[Any] | None]) -> _Found:
    return [(name, values) for name, values in places if values is not None]


def _agreed(found: _Found) -> Sequence[Any]:
    (first, values), *others = found
    for other, same in others:
        if same != values:
            raise _Flaw(f"{first} and {other} differ: {_difference(values, same)}")
    return values


def _difference(one: Sequence[Any], other: Sequence[Any]) -> str:
    if len(one) != len(other):
        return f"{len(one)} and {len(other)} tokens"
    place = next(place for place, (left, right) in enumerate(zip(one, other, strict=True)) if left != right)
    return f"{one[place]} and {other[place]} at token {place}"


def _entries(choice: JsonObject) -> list[JsonObject]:
    logprobs = choice.get("logprobs")
    return (logprobs.get("content") or []) if isinstance(logprobs, dict) else []


def _is_id(entry: JsonObject) -> bool:
    return str(entry.get("token", "")).startswith(_TOKEN_ID)


def _readable(choice: JsonObject) -> bool:
    """Whether the log-probabilities have their form, numbers that JSON has, and no token ID."""
    if (given := choice.get("logprobs")) is None:
        return True
    try:
        logprobs = ChoiceLogprobs.model_validate_json(msgspec.json.encode(given))
    except ValidationError:
        return False
    return not any(entry.token.startswith(_TOKEN_ID) for entry in logprobs.content or ())


def _spans(completion: JsonObject, told: JsonObject) -> tuple[PolicySpan, ...]:
    """Which weights sampled which tokens; those that were changed before they had sampled any are not in it."""
    if (counted := completion.get("policy_spans")) is not None:
        spans = [(_whole(version), _whole(count)) for version, count in counted]
    else:
        versions = told.get("weight_versions") or []
        if any(_number(span["version"]) is None for span in versions):
            return ()
        ends = [0, *(span["end"] for span in versions)]
        if [span["start"] for span in versions] != ends[:-1]:
            raise _Flaw(f"the spans of weight versions do not follow each other: {versions}")
        spans = [(int(str(span["version"])), span["end"] - span["start"]) for span in versions]
    return tuple(PolicySpan(version, count) for version, count in spans if count)


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    return value


def _number(version: Any) -> int | None:
    """A version that is a number; SGLang writes it as a text, and calls weights that nobody named `default`."""
    return int(str(version)) if str(version).isdecimal() else None
