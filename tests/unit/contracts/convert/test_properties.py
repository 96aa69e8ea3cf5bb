"""What holds for every conversation: nothing that the other API can say is lost on the way there and back."""

import json
from itertools import groupby
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts import chat
from contracts.base import JsonObject
from contracts.convert import ChatStyle, request_from_chat, request_to_chat, response_from_chat, response_to_chat
from contracts.errors import NoChatForm, NoResponsesForm
from contracts.responses import Response, ResponseCreateParams
from tests.unit.contracts.convert import conversations
from tests.unit.contracts.documents import documents

STYLES = [ChatStyle(reasoning_style=style) for style in ("reasoning_content", "reasoning", "think_tags")]
many = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def to_chat(items: list[JsonObject], style: ChatStyle) -> list[JsonObject]:
    request = request_to_chat(ResponseCreateParams.model_validate({"input": items}), style)
    messages: list[JsonObject] = request.to_dict()["messages"]
    return messages


def from_chat(messages: list[JsonObject], style: ChatStyle) -> list[JsonObject]:
    request = request_from_chat(chat.ChatCompletionParams.model_validate({"messages": messages}), style)
    items: list[JsonObject] = request.to_dict()["input"]
    return items


def said(items: list[JsonObject], style: ChatStyle) -> list[JsonObject]:
    """The items without what Chat Completions has no place for.

    IDs and status of items, and whether reasoning was told as summary or content, and in how many parts where one
    string holds it; whether an assistant's text is a string or the one part of a list.
    """
    return [_said(item, style) for item in items]


def _said(item: JsonObject, style: ChatStyle) -> JsonObject:
    item = {name: value for name, value in item.items() if name not in ("id", "status")}
    if item.get("type") == "reasoning":
        texts = [part["text"] for part in item.get("content") or item["summary"]]
        return {"type": "reasoning", "texts": texts if style.reasoning_style == "think_tags" else "\n\n".join(texts)}
    if item.get("type") == "message":
        del item["type"]
    if item.get("role") == "assistant" and isinstance(item["content"], str):
        item["content"] = [{"type": "output_text", "text": item["content"], "annotations": []}]
    return item


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.reasoning_style)
@many
@given(items=conversations.items())
def test_items_survive_the_way_through_chat(style: ChatStyle, items: list[JsonObject]) -> None:
    assert said(from_chat(to_chat(items, style), style), style) == said(items, style)


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.reasoning_style)
@many
@given(data=st.data())
def test_messages_survive_the_way_through_items_exactly(style: ChatStyle, data: st.DataObject) -> None:
    field = "reasoning" if style.reasoning_style == "reasoning" else "reasoning_content"
    messages = data.draw(conversations.messages(field))
    if style.reasoning_style == "think_tags":  # reasoning fields are read, and go back between tags
        messages = to_chat(from_chat(messages, style), style)
    assert to_chat(from_chat(messages, style), style) == messages


def kinds(messages: list[JsonObject]) -> dict[str, Any]:
    """All reasoning, all text and all calls, each in its order, whichever message says it."""
    assistant = [message for message in messages if message["role"] == "assistant"]
    contents = [message.get("content") or [] for message in assistant]
    parts = [[{"type": "text", "text": content}] if isinstance(content, str) else content for content in contents]
    return {
        "reasoning": "\n\n".join(m["reasoning_content"] for m in assistant if "reasoning_content" in m),
        "text": [(part["type"], part.get("text") or part.get("refusal")) for some in parts for part in some],
        "calls": [call for message in assistant for call in message.get("tool_calls", [])],
        "others": [message for message in messages if message["role"] != "assistant"],
    }


@many
@given(items=conversations.disordered_items())
def test_items_in_any_order_are_all_said_in_the_order_of_their_kind(items: list[JsonObject]) -> None:
    style = ChatStyle()
    one_by_one = [message for item in items for message in to_chat([item], style)]
    assert kinds(to_chat(items, style)) == kinds(one_by_one)


@many
@given(items=conversations.disordered_items())
def test_a_second_way_through_chat_changes_nothing_more(items: list[JsonObject]) -> None:
    style = ChatStyle()
    once = to_chat(items, style)
    assert to_chat(from_chat(once, style), style) == once


@many
@given(items=conversations.items())
def test_an_answered_call_stands_next_to_its_outputs(items: list[JsonObject]) -> None:
    for role, run in groupby(to_chat(items, ChatStyle()), key=lambda message: message["role"]):
        if role == "assistant":
            *earlier, last = run
            waiting = [call["id"] for call in last.get("tool_calls", [])]
            assert not any(message.get("tool_calls") for message in earlier)
        elif role == "tool":
            assert [message["tool_call_id"] for message in run] == waiting


@many
@given(document=documents(ResponseCreateParams, extra=True))
def test_any_request_is_said_or_refused_by_name(document: JsonObject) -> None:
    request = ResponseCreateParams.model_validate(document)
    try:
        said = request_to_chat(request)
    except NoChatForm:
        pass
    else:
        assert chat.ChatCompletionParams.model_validate_json(said.to_json()) == said
    assert request.to_dict() == document, "converting must not change what is converted"


@many
@given(document=documents(chat.ChatCompletionParams, extra=True))
def test_any_chat_request_is_said_or_refused_by_name(document: JsonObject) -> None:
    request = chat.ChatCompletionParams.model_validate(document)
    try:
        said = request_from_chat(request)
    except NoResponsesForm:
        pass
    else:
        assert ResponseCreateParams.model_validate_json(said.to_json()) == said
    assert request.to_dict() == document, "converting must not change what is converted"


@many
@given(document=documents(chat.ChatCompletion, extra=True), style=st.sampled_from(STYLES))
def test_any_completion_is_said_or_refused_by_name(document: JsonObject, style: ChatStyle) -> None:
    completion = chat.ChatCompletion.model_validate(document)
    try:
        said = response_from_chat(completion, style)
    except NoResponsesForm:
        pass
    else:
        assert Response.model_validate_json(said.to_json()) == said
        assert response_from_chat(completion, style).to_json() == said.to_json()
    assert completion.to_dict() == document, "converting must not change what is converted"


@many
@given(document=documents(Response, extra=True), style=st.sampled_from(STYLES))
def test_any_response_is_said_or_refused_by_name(document: JsonObject, style: ChatStyle) -> None:
    response = Response.model_validate(document)
    try:
        said = response_to_chat(response, style)
    except NoChatForm:
        pass
    else:
        assert chat.ChatCompletion.model_validate_json(said.to_json()) == said
    assert response.to_dict() == document, "converting must not change what is converted"


REPLIES = st.fixed_dictionaries(
    {"role": st.just("assistant")},
    optional={
        "reasoning_content": conversations.TEXTS,
        "refusal": conversations.TEXTS,
        "content": conversations.TEXTS,
        "tool_calls": st.lists(
            conversations.CHAT_CALLS.map(lambda call: {"id": json.dumps(call), **call}), min_size=1, max_size=2
        ),
        "x_engine": st.integers(),
    },
)
USAGES = st.fixed_dictionaries(
    {"prompt_tokens": st.integers(0), "completion_tokens": st.integers(0), "total_tokens": st.integers(0)},
    optional={
        "prompt_tokens_details": st.fixed_dictionaries({"cached_tokens": st.integers(0)}),
        "completion_tokens_details": st.fixed_dictionaries(
            {"reasoning_tokens": st.integers(0), "audio_tokens": st.just(1)}
        ),
    },
)

ADDED = {
    "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 0},
}
"""What is 0 in a response when an engine says nothing of it."""


@many
@given(message=REPLIES, finish=st.sampled_from(["stop", "length", "content_filter", "abort"]), usage=USAGES)
def test_a_completion_survives_the_way_through_a_response(message: JsonObject, finish: str, usage: JsonObject) -> None:
    message = {"content": None, **message}
    if finish == "stop" and "tool_calls" in message:
        finish = "tool_calls"
    completion = {
        "id": "chatcmpl-7", "object": "chat.completion", "created": 5, "model": "m", "system_fingerprint": "fp",
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "stop_reason": 9}], "usage": usage,
        "kv_transfer_params": {"a": 1},
    }  # fmt: skip
    parsed = chat.ChatCompletion.model_validate(completion)
    again = response_to_chat(response_from_chat(parsed)).to_dict()
    usage = usage | {name: added | usage.get(name, {}) for name, added in ADDED.items()}
    assert again == completion | {"usage": usage}
