"""What does an engine's answer say? `read_answer`: one document, whether it came whole or as a stream. Pure.

A stream of server-sent events becomes the completion that the engine would have answered without streaming, tokens and
log-probabilities too. Numbers that JSON does not have (NaN) are read, so that it can be said what is wrong with them.
Called by `ChatModel`.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from contracts.base import JsonObject

_JOINED: Final = ("content", "reasoning_content", "reasoning", "refusal")
"""Fields of a delta that go on where the one before ended."""
_LISTS: Final = ("token_ids",)
"""Fields of a choice that do."""


def read_answer(body: bytes) -> JsonObject:
    """The completion in `body`; raises ValueError for a stream that was cut off or says an error, and for no JSON."""
    if not body.lstrip().startswith((b"data:", b"event:", b":")):
        return _decoded(body)
    completion: JsonObject = {"object": "chat.completion"}
    choices: dict[int, JsonObject] = {}
    for chunk in _chunks(body):
        if error := chunk.get("error"):
            raise ValueError(f"the stream says an error: {error}")
        for choice in chunk.pop("choices", ()):
            _add_choice(choices.setdefault(choice.get("index", 0), {"message": {"role": "assistant"}}), choice)
        completion |= {name: value for name, value in chunk.items() if name != "object" and value is not None}
    return completion | {"choices": [choices[index] for index in sorted(choices)]}


def _chunks(body: bytes) -> Iterator[JsonObject]:
    for event in body.replace(b"\r\n", b"\n").split(b"\n\n"):
        data = b"\n".join(line[5:].lstrip(b" ") for line in event.split(b"\n") if line.startswith(b"data:"))
        if data == b"[DONE]":
            return
        if data:
            yield _decoded(data)
    raise ValueError("the stream ended before it was done")


def _decoded(body: bytes) -> JsonObject:
    try:
        document: Any = msgspec.json.decode(body)
    except msgspec.DecodeError:
        document = json.loads(body)
    if not isinstance(document, dict):
        raise ValueError("the answer is no JSON object")  # noqa: TRY004 - what `request` takes for a bad body
    return document


def _add_choice(choice: JsonObject, chunk: JsonObject) -> None:
    delta, logprobs = chunk.pop("delta", None) or {}, chunk.pop("logprobs", None) or {}
    _add_message(choice["message"], delta)
    for name, entries in logprobs.items():
        if entries:
            choice.setdefault("logprobs", {}).setdefault(name, []).extend(entries)
    for name, value in chunk.items():
        if name in _LISTS and value is not None:
            choice.setdefault(name, []).extend(value)
        elif value is not None:
            choice[name] = value


def _add_message(message: JsonObject, delta: JsonObject) -> None:
    for name, value in delta.items():
        if name == "tool_calls":
            _add_calls(message.setdefault(name, []), value or ())
        elif name in _JOINED and value is not None:
            message[name] = message.get(name, "") + value
        elif value is not None:
            message[name] = value


def _add_calls(calls: list[JsonObject], deltas: Iterable[JsonObject]) -> None:
    for delta in deltas:
        index = delta.get("index", len(calls))
        while len(calls) <= index:
            calls.append({"type": "function", "function": {"name": "", "arguments": ""}})
        call, function = calls[index], delta.get("function") or {}
        call |= {name: delta[name] for name in ("id", "type") if delta.get(name)}
        for name in ("name", "arguments"):
            call["function"][name] += function.get(name) or ""
