"""How reasoning is read from an engine, and sent back to it."""

from typing import Any

import pytest

from contracts import chat
from contracts.base import JsonObject
from contracts.convert import ChatStyle, request_to_chat, response_from_chat, response_to_chat
from contracts.errors import NoChatForm
from contracts.responses import ReasoningItem, Response, ResponseCreateParams

TAGS = ChatStyle(reasoning_style="think_tags")


def to_chat(*items: JsonObject, **style: Any) -> list[JsonObject]:
    request = ResponseCreateParams.model_validate({"input": list(items)})
    messages: list[JsonObject] = request_to_chat(request, ChatStyle(**style)).to_dict()["messages"]
    return messages


def reply(style: ChatStyle, **message: object) -> Response:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **message}}
    completion = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return response_from_chat(chat.ChatCompletion.model_validate(completion), style)


def reasoned(response: Response) -> list[str]:
    return [
        part.to_dict()["text"]
        for item in response.output
        if isinstance(item, ReasoningItem)
        for part in item.content or ()
    ]


def thought(*texts: str) -> JsonObject:
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text} for text in texts]}


def summarised(*texts: str) -> JsonObject:
    return {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": text} for text in texts]}


WROTE: JsonObject = {"role": "assistant", "content": "so"}


@pytest.mark.parametrize(
    ("style", "message"),
    [
        ("reasoning_content", {"reasoning_content": "a\n\nb", "content": "so"}),
        ("reasoning", {"reasoning": "a\n\nb", "content": "so"}),
        ("think_tags", {"content": "<think>a</think><think>b</think>so"}),
        ("omit", {"content": "so"}),
    ],
)
@pytest.mark.parametrize("form", [thought, summarised])
def test_reasoning_goes_back_in_the_style_of_the_engine(style: str, message: JsonObject, form: Any) -> None:
    assert to_chat(form("a", "b"), WROTE, reasoning_style=style) == [{"role": "assistant", **message}]


def test_reasoning_given_only_in_content_is_kept() -> None:
    item = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "deep"}]}
    assert to_chat(item)[0]["reasoning_content"] == "deep"


def test_where_there_is_both_the_content_is_sent_and_not_its_summary_too() -> None:
    item = {**summarised("short"), "content": [{"type": "reasoning_text", "text": "deep"}]}
    assert to_chat(item)[0]["reasoning_content"] == "deep"


def test_a_turn_of_reasoning_alone_is_still_a_turn() -> None:
    assert to_chat(thought("a")) == [{"role": "assistant", "reasoning_content": "a", "content": ""}]
    assert to_chat(thought("a"), reasoning_style="think_tags") == [{"role": "assistant", "content": "<think>a</think>"}]
    assert to_chat(thought("a"), reasoning_style="omit") == [{"role": "assistant", "content": ""}]


def test_omitted_reasoning_makes_no_messages_of_its_own() -> None:
    assert to_chat(thought("a"), thought("b"), WROTE, reasoning_style="omit") == [
        {"role": "assistant", "content": "so"}
    ]


def test_tags_stand_in_front_of_the_first_text_of_parts() -> None:
    parts = [{"type": "output_text", "text": "x"}, {"type": "output_text", "text": "y"}]
    (message,) = to_chat(thought("a"), {"role": "assistant", "content": parts}, reasoning_style="think_tags")
    assert message["content"] == [{"type": "text", "text": "<think>a</think>x"}, {"type": "text", "text": "y"}]
    refusal = [{"type": "refusal", "refusal": "no"}]
    (message,) = to_chat(thought("a"), {"role": "assistant", "content": refusal}, reasoning_style="think_tags")
    assert message["content"] == [{"type": "text", "text": "<think>a</think>"}, *refusal]


def test_encrypted_reasoning_is_refused_or_left_out_if_allowed() -> None:
    item = {**summarised("a"), "encrypted_content": "gAAAA"}
    with pytest.raises(NoChatForm, match=r"drop: \[encrypted_content\]") as refused:
        to_chat(item)
    assert refused.value.name == "encrypted_content"
    assert to_chat(item, WROTE, drop=("encrypted_content",)) == [{**WROTE, "reasoning_content": "a"}]
    assert to_chat(item, WROTE, reasoning_style="omit") == [WROTE]


def test_a_reasoning_part_of_unknown_type_is_refused_by_name() -> None:
    with pytest.raises(NoChatForm, match="reasoning_video"):
        to_chat({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_video"}]})


@pytest.mark.parametrize("style", ["reasoning_content", "reasoning", "think_tags", "omit"])
@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_both_fields_are_read_whatever_the_style(style: Any, field: str) -> None:
    response = reply(ChatStyle(reasoning_style=style), content="so", **{field: "a"})
    assert (reasoned(response), response.output_text) == (["a"], "so")


def test_fields_that_say_the_same_are_one_reasoning() -> None:
    assert reasoned(reply(ChatStyle(), content="so", reasoning="a", reasoning_content="a")) == ["a"]
    assert reasoned(reply(ChatStyle(), content="so", reasoning="b", reasoning_content="a")) == ["a", "b"]


def test_an_empty_field_is_no_reasoning() -> None:
    assert reasoned(reply(ChatStyle(), content="so", reasoning_content="")) == []


@pytest.mark.parametrize(
    ("content", "texts", "rest"),
    [
        ("<think>a</think>so", ["a"], "so"),
        ("<think>\na\n</think>\n\nso", ["\na\n"], "\n\nso"),
        ("<think>a</think><think>b</think>so", ["a", "b"], "so"),
        ("<think></think>so", [""], "so"),
        ("<think>a</think>", ["a"], ""),
        ("<think>a", [], "<think>a"),
        ("a</think>so", [], "a</think>so"),
        ("so <think>a</think>", [], "so <think>a</think>"),
        ("<think>a</think>so<think>b</think>", ["a"], "so<think>b</think>"),
    ],
)
def test_tags_at_the_start_are_reasoning_and_go_back_as_they_came(content: str, texts: list[str], rest: str) -> None:
    response = reply(TAGS, content=content)
    assert (reasoned(response), response.output_text) == (texts, rest)
    assert response_to_chat(response, TAGS).choices[0].message.content == content
    again = ResponseCreateParams(input=response.output)
    assert request_to_chat(again, TAGS).to_dict()["messages"] == [{"role": "assistant", "content": content}]


def test_without_the_style_tags_stay_in_the_text() -> None:
    response = reply(ChatStyle(), content="<think>a</think>so")
    assert (reasoned(response), response.output_text) == ([], "<think>a</think>so")
