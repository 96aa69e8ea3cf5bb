"""A response as a chat completion: `response_to_chat`. Used by the gateway.

A completion is one reply in one message, whose content is a string. So the parts of a message are joined as they are,
and several messages of one reply by a blank line. IDs derive from the response's.
"""

from collections.abc import Sequence
from typing import Final

from contracts import chat
from contracts import responses as r
from contracts.base import JsonObject
from contracts.convert.check import checked, keep
from contracts.convert.history import messages_of
from contracts.convert.reasoning import SEPARATOR
from contracts.convert.reply_from_chat import CHOICE, DETAILS, REASONS
from contracts.convert.style import DEFAULT_STYLE, ChatStyle, leave_out
from contracts.errors import NoChatForm

_FINISHES: Final = {reason: finish for finish, reason in REASONS.items()}
_PLACES: Final = ("start_index", "end_index", "index")
"""Where an annotation says which characters of its text it is about."""

_PART: Final = ("type", "text", "refusal", "annotations")


def response_to_chat(response: r.Response, style: ChatStyle = DEFAULT_STYLE) -> chat.ChatCompletion:
    """`response` as a completion with one choice; the request's options that it repeats are not part of that.

    Raises `NoChatForm` for a response that failed or is not done, for items that are no reply of a model, like tool
    outputs, and for what the format cannot say.
    """
    if response.status not in (None, "completed", "incomplete"):
        why = response.error.message if response.error else "it holds no reply"
        raise NoChatForm("response", f"response {response.id!r} is {response.status}, and has no completion: {why}")
    for item in response.output:
        if isinstance(item, r.FunctionCallOutput | r.CustomToolCallOutput) or (
            isinstance(item, r.InputMessage) and item.role != "assistant"
        ):
            raise NoChatForm(item.type or "message", f"response {response.id!r} holds more than one reply of the model")
    message = _joined(messages_of(response.output, style), style)
    choice: JsonObject = {"index": 0, "message": message, "finish_reason": _finish(response, message)}
    extra = dict(response.model_extra or {})
    rest = dict(extra.pop(CHOICE, None) or {})
    if logprobs := _logprobs(response.output) | (rest.pop("logprobs", None) or {}):
        choice["logprobs"] = logprobs
    keep(rest, choice, NoChatForm)
    body: JsonObject = {"id": f"chatcmpl-{response.id.removeprefix('resp_')}", "object": "chat.completion"}
    body |= {"created": int(response.created_at), "model": response.model, "choices": [choice]}
    if response.usage is not None:
        body["usage"] = _usage(response.usage)
    body |= {name: value for name in ("service_tier", "metadata") if (value := getattr(response, name)) is not None}
    keep(extra, body, NoChatForm)
    return checked(chat.ChatCompletion, body, NoChatForm)


def _finish(response: r.Response, message: JsonObject) -> str:
    if response.status == "incomplete":
        reason = response.incomplete_details.reason if response.incomplete_details else None
        return _FINISHES.get(reason or "", reason) or "stop"
    return "tool_calls" if message.get("tool_calls") else "stop"


def _joined(messages: Sequence[JsonObject], style: ChatStyle) -> JsonObject:
    """`messages`, all of the assistant, as one whose content is a string or null."""
    joined: JsonObject = {"role": "assistant", "content": None}
    for message in messages:
        text, refusal, annotations, rest = _read(message)
        if text:
            before = "" if joined["content"] is None else joined["content"] + SEPARATOR
            joined["content"] = before + text
            annotations = [_moved(annotation, len(before)) for annotation in annotations]
        if annotations:
            joined["annotations"] = joined.get("annotations", []) + annotations
        if refusal:
            joined["refusal"] = SEPARATOR.join(filter(None, (joined.get("refusal"), refusal)))
        for name, value in rest.items():
            if name == style.reasoning_style and name in joined:
                joined[name] += SEPARATOR + value
            elif name == "tool_calls":
                joined[name] = joined.get(name, []) + value
            elif joined.setdefault(name, value) != value:
                leave_out(name, "two messages of one reply differ in it, and a completion has one message", style)
    return joined


def _read(message: JsonObject) -> tuple[str, str, list[JsonObject], JsonObject]:
    """Text, refusal, annotations and all else of an assistant's message."""
    rest = {name: value for name, value in message.items() if name not in ("role", "content", "annotations")}
    content = message.get("content") or ""
    if isinstance(content, str):
        return content, "", message.get("annotations", []), rest
    text, refusal, annotations = "", "", []
    for part in content:
        if part["type"] == "text":
            annotations += [_moved(annotation, len(text)) for annotation in part.get("annotations", ())]
            text += part["text"]
        elif part["type"] == "refusal":
            refusal += part["refusal"]
        else:
            raise NoChatForm(part["type"], f"a reply has a part of type {part['type']}: a completion has text only")
        rest |= {name: value for name, value in part.items() if name not in _PART}
    return text, refusal, annotations, rest


def _moved(annotation: JsonObject, characters: int) -> JsonObject:
    """`annotation` of a text that has moved."""
    kind = annotation["type"]
    inner = annotation.get(kind)
    if not characters or not isinstance(inner, dict):
        return annotation
    places = {name: inner[name] + characters for name in _PLACES if isinstance(inner.get(name), int)}
    return {**annotation, kind: {**inner, **places}}


def _logprobs(items: Sequence[r.Item]) -> JsonObject:
    """The log-probabilities of all texts and refusals."""
    logprobs: dict[str, list[JsonObject]] = {}
    for item in items:
        for part in item.content if isinstance(item, r.OutputMessage) else ():
            if isinstance(part, r.OutputText) and part.logprobs:
                logprobs.setdefault("content", []).extend(logprob.to_dict() for logprob in part.logprobs)
            elif isinstance(part, r.Refusal) and (tokens := (part.model_extra or {}).get("logprobs")):
                logprobs.setdefault("refusal", []).extend(tokens)
    return logprobs


def _usage(usage: r.ResponseUsage) -> JsonObject:
    document: JsonObject = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
    }
    for name, chat_name, *_ in DETAILS:
        details = getattr(usage, name)
        if details is not None:
            document[chat_name] = details.to_dict()
    return document | (usage.model_extra or {})
