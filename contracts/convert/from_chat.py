"""A Chat Completions request as a Responses request: `request_from_chat`. Used by the gateway.

Options of the same name and meaning pass as they are, and so does every field that the Responses API does not know. A
null option is the same as none.
"""

from collections.abc import Sequence
from typing import Final

from contracts import chat
from contracts import responses as r
from contracts.base import JsonObject
from contracts.convert.check import LOGPROBS, SAME, checked, keep
from contracts.convert.items import items_of, reasons
from contracts.convert.parts import given, parts_from_chat
from contracts.convert.style import DEFAULT_STYLE, ChatStyle
from contracts.convert.tools import choice_from_chat, tools_from_chat
from contracts.errors import NoResponsesForm

_CHAT_ONLY: Final = (
    "frequency_penalty", "presence_penalty", "seed", "stop", "logit_bias", "modalities", "audio", "prediction",
    "web_search_options",
)  # fmt: skip


def request_from_chat(params: chat.ChatCompletionParams, style: ChatStyle = DEFAULT_STYLE) -> r.ResponseCreateParams:
    """`params` as a Responses request. Messages stay where they are: none becomes `instructions`.

    Raises `NoResponsesForm`, whose `name` is the field that cannot be said.
    """
    _refuse(params)
    body: JsonObject = {"input": _items(params.messages, style)}
    body |= {name: value for name in SAME if (value := getattr(params, name)) is not None}
    if params.stream_options is not None:
        body["stream_options"] = params.stream_options.to_dict()
    if (limit := _limit(params)) is not None:
        body["max_output_tokens"] = limit
    if params.tools:
        body["tools"] = tools_from_chat(params.tools)
    if params.tool_choice is not None:
        body["tool_choice"] = choice_from_chat(params.tool_choice)
    _text_from_chat(params, body)
    if params.reasoning_effort is not None:
        body["reasoning"] = {"effort": params.reasoning_effort}
    extra = given(params, *_CHAT_ONLY)
    for name in ("text", "reasoning"):  # further fields of the two, which go by these names in Chat Completions too
        if isinstance(more := extra.get(name), dict):
            body[name] = extra[name] = body.get(name, {}) | more
    if params.logprobs:
        body["include"] = [LOGPROBS]
    if params.top_logprobs is not None:
        body["top_logprobs"] = params.top_logprobs
    keep(extra, body, NoResponsesForm)
    return checked(r.ResponseCreateParams, body, NoResponsesForm)


def _refuse(params: chat.ChatCompletionParams) -> None:
    for name in ("functions", "function_call"):
        if getattr(params, name) is not None:
            raise NoResponsesForm(name, f"{name} is the form before tools: give `tools` and `tool_choice` instead")
    if params.n not in (None, 1):
        raise NoResponsesForm("n", f"n is {params.n}: a response holds one answer, ask as many times instead")


def _limit(params: chat.ChatCompletionParams) -> int | None:
    limits = {params.max_completion_tokens, params.max_tokens} - {None}
    if len(limits) > 1:
        raise NoResponsesForm("max_tokens", "max_tokens and max_completion_tokens differ: give one limit")
    return limits.pop() if limits else None


def _text_from_chat(params: chat.ChatCompletionParams, body: JsonObject) -> None:
    text: JsonObject = {} if params.verbosity is None else {"verbosity": params.verbosity}
    match params.response_format:
        case None:
            pass
        case chat.JsonSchemaFormat(json_schema=schema):
            text["format"] = {"type": "json_schema", "schema": schema.schema_ or {}}
            text["format"] |= given(schema, "name", "description", "strict")
        case _:
            text["format"] = params.response_format.to_dict()
    if text:
        body["text"] = text


def _items(messages: Sequence[chat.Message], style: ChatStyle) -> list[JsonObject]:
    items: list[JsonObject] = []
    called: dict[str, str] = {}  # engines use IDs again: the latest call of an ID counts
    for index, message in enumerate(messages):
        match message:
            case chat.AssistantMessage():
                said = items_of(message, style, apart=_apart(messages, index, style))
                called |= {item["call_id"]: item["type"] for item in said if "call_id" in item}
                items += [_easy(item, message) for item in said]
            case chat.ToolMessage():
                kind = called.get(message.tool_call_id, "function_call") + "_output"
                output = _content(message.content)
                items.append(
                    {"type": kind, "call_id": message.tool_call_id, "output": output, **given(message, "name")}
                )
            case chat.FunctionMessage():
                raise NoResponsesForm("function", "a message of role function names no call ID: use role tool")
            case _:
                content = _content(message.content)
                items.append({"role": message.role, "content": content, **given(message, "name")})
    return items


def _apart(messages: Sequence[chat.Message], index: int, style: ChatStyle) -> bool:
    """Whether the items of the assistant's message at `index` would not show where it begins or ends."""

    def end_unseen(first: int) -> bool:
        before, after = messages[first], messages[first + 1]
        if not isinstance(before, chat.AssistantMessage) or not isinstance(after, chat.AssistantMessage):
            return False
        return not before.tool_calls and not reasons(after, style)

    return (index > 0 and end_unseen(index - 1)) or (index + 1 < len(messages) and end_unseen(index))


def _content(content: chat.Content) -> str | list[JsonObject]:
    return content if isinstance(content, str) else parts_from_chat(content, "input_text")


def _easy(item: JsonObject, message: chat.AssistantMessage) -> JsonObject:
    """A message item in the form that a requester writes, where that form can hold it: without `type` and ID."""
    if item["type"] != "message":
        return item
    parts = item["content"]
    plain = len(parts) == 1 and parts[0].keys() == {"type", "text", "annotations"} and not parts[0]["annotations"]
    if isinstance(message.content, list) and parts:
        return {name: value for name, value in item.items() if name != "type"}
    if plain or not parts:
        text = parts[0]["text"] if parts else ""
        return {name: value for name, value in item.items() if name != "type"} | {"content": text}
    return item
