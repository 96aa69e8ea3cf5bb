"""How the items of a conversation become messages, and messages items."""

from typing import Any

import pytest

from contracts import chat
from contracts.base import JsonObject
from contracts.convert import ChatStyle, request_from_chat, request_to_chat
from contracts.errors import NoChatForm, NoResponsesForm
from contracts.responses import ResponseCreateParams


def to_chat(*items: JsonObject, **style: Any) -> list[JsonObject]:
    request = ResponseCreateParams.model_validate({"input": list(items)})
    messages: list[JsonObject] = request_to_chat(request, ChatStyle(**style)).to_dict()["messages"]
    return messages


def from_chat(*messages: JsonObject, **style: Any) -> list[JsonObject]:
    request = chat.ChatCompletionParams.model_validate({"messages": list(messages)})
    items: list[JsonObject] = request_from_chat(request, ChatStyle(**style)).to_dict()["input"]
    return items


def user(content: object) -> JsonObject:
    return {"role": "user", "content": content}


def wrote(*texts: str) -> JsonObject:
    parts = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": parts}


def thought(text: str) -> JsonObject:
    return {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def called(call_id: str, name: str = "add", arguments: str = "{}") -> JsonObject:
    return {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": name, "arguments": arguments}


def answered(call_id: str, output: object = "3") -> JsonObject:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def tool_call(call_id: str, name: str = "add", arguments: str = "{}") -> JsonObject:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def assistant(**fields: object) -> JsonObject:
    return {"role": "assistant", **fields}


def tool(call_id: str, content: object = "3") -> JsonObject:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


# ------------------------------------------------------------------------------------------- what was put in


def test_a_string_input_is_one_user_message() -> None:
    request = ResponseCreateParams.model_validate({"input": "hi"})
    assert request_to_chat(request).to_dict() == {"messages": [user("hi")]}


def test_instructions_are_a_system_message_before_all_others() -> None:
    request = ResponseCreateParams.model_validate({"instructions": "be brief", "input": "hi"})
    assert request_to_chat(request).to_dict()["messages"] == [{"role": "system", "content": "be brief"}, user("hi")]


def test_empty_instructions_are_none() -> None:
    request = ResponseCreateParams.model_validate({"instructions": "", "input": "hi"})
    assert request_to_chat(request).to_dict()["messages"] == [user("hi")]


@pytest.mark.parametrize("role", ["user", "system", "developer"])
@pytest.mark.parametrize("form", [{}, {"type": "message"}, {"type": "message", "status": "completed", "id": "msg_1"}])
@pytest.mark.parametrize(
    ("content", "said"), [("hi", "hi"), ([{"type": "input_text", "text": "hi"}], [{"type": "text", "text": "hi"}])]
)
def test_easy_and_full_messages_of_each_role_keep_strings_and_parts(
    role: str, form: JsonObject, content: object, said: object
) -> None:
    assert to_chat({"role": role, "content": content, **form}) == [{"role": role, "content": said}]
    assert from_chat({"role": role, "content": said}) == [{"role": role, "content": content}]


def test_developer_messages_can_be_sent_as_system() -> None:
    assert to_chat({"role": "developer", "content": "d"}, developer_role="system") == [
        {"role": "system", "content": "d"}
    ]


def test_instructions_and_leading_system_messages_can_be_merged_into_one() -> None:
    items = [{"role": "system", "content": "b"}, {"role": "developer", "content": "c"}, user("hi")]
    late = {"role": "system", "content": "later"}
    request = ResponseCreateParams.model_validate({"instructions": "a", "input": [*items, late]})
    messages = request_to_chat(request, ChatStyle(merge_system=True)).to_dict()["messages"]
    assert messages == [{"role": "system", "content": "a\n\nb\n\nc"}, user("hi"), late]


def test_merged_system_messages_with_parts_stay_parts() -> None:
    part = {"type": "input_text", "text": "b"}
    (message,) = to_chat({"role": "system", "content": "a"}, {"role": "system", "content": [part]}, merge_system=True)
    assert message["content"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


def test_empty_contents_are_never_sent_as_a_list() -> None:
    assert to_chat(user([])) == [user("")]
    assert to_chat(answered("c", [])) == [tool("c", "")]
    assert to_chat(wrote()) == [assistant(content="")]
    assert to_chat(wrote(), called("c")) == [assistant(tool_calls=[tool_call("c")])]
    assert to_chat(wrote(""), called("c")) == [assistant(tool_calls=[tool_call("c")])]


def test_fields_that_the_api_does_not_define_stay_on_their_message() -> None:
    assert to_chat({**user("hi"), "name": "eve"}) == [{**user("hi"), "name": "eve"}]
    assert from_chat({**user("hi"), "name": "eve"}) == [{**user("hi"), "name": "eve"}]
    tokens = {"prompt_token_ids": [], "generation_token_ids": [1], "generation_log_probs": [-0.5]}
    assert to_chat(thought("a"), {**wrote("b"), **tokens}) == [assistant(reasoning_content="a", content="b", **tokens)]
    (message,) = to_chat({**called("c"), "extra_content": {"google": 1}})
    assert message["tool_calls"] == [{**tool_call("c"), "extra_content": {"google": 1}}]
    assert from_chat(message)[0]["extra_content"] == {"google": 1}


def test_items_of_one_message_must_agree_on_a_field_that_it_can_say_once() -> None:
    items = [{**thought("a"), "token": 1}, {**wrote("b"), "token": 2}]
    with pytest.raises(NoChatForm, match="token"):
        to_chat(*items)
    assert to_chat(*items, drop=("token",))[0]["token"] == 1


# ------------------------------------------------------------------------------------------- parts

PARTS = [
    ({"type": "input_text", "text": "a"}, {"type": "text", "text": "a"}),
    (
        {"type": "input_image", "image_url": "https://h/a.png", "detail": "low"},
        {"type": "image_url", "image_url": {"url": "https://h/a.png", "detail": "low"}},
    ),
    (
        {"type": "input_image", "image_url": "data:image/png;base64,AA"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
    ),
    (
        {"type": "input_file", "file_data": "data:application/pdf;base64,AA", "filename": "a.pdf"},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,AA", "filename": "a.pdf"}},
    ),
    ({"type": "input_file", "file_id": "file-1"}, {"type": "file", "file": {"file_id": "file-1"}}),
    (
        {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
        {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
    ),
    (
        {"type": "input_video", "video_url": "https://h/a.mp4"},
        {"type": "video_url", "video_url": {"url": "https://h/a.mp4"}},
    ),
    (
        {"type": "audio_url", "audio_url": {"url": "https://h/a.wav"}},
        {"type": "audio_url", "audio_url": {"url": "https://h/a.wav"}},
    ),
    (
        {"type": "input_text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit"}},
        {"type": "text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit"}},
    ),
]


@pytest.mark.parametrize(("part", "said"), PARTS, ids=lambda part: part["type"])
def test_each_part_has_its_form_both_ways(part: JsonObject, said: JsonObject) -> None:
    assert to_chat(user([part])) == [user([said])]
    assert from_chat(user([said])) == [user([part])]


@pytest.mark.parametrize(
    ("part", "name", "message"),
    [
        ({"type": "input_image", "file_id": "file-1"}, "input_image", "file-1.*image_url"),
        ({"type": "input_image", "detail": "low"}, "input_image", "neither a URL nor data"),
        ({"type": "input_image", "image_url": ""}, "input_image", "neither a URL nor data"),
        ({"type": "input_file", "file_url": "https://h/a"}, "input_file", "https://h/a.*file_data"),
        ({"type": "input_hologram", "x": 1}, "input_hologram", "text, images, audio, files"),
        ({"type": "input_video", "video": ["a"]}, "input_video", "input_video"),
        ({"type": "summary_text", "text": "a"}, "summary_text", "summary_text"),
    ],
)
def test_a_part_without_a_chat_form_is_refused_by_name(part: JsonObject, name: str, message: str) -> None:
    with pytest.raises(NoChatForm, match=message) as refused:
        to_chat(user([part]))
    assert refused.value.name == name


# ------------------------------------------------------------------------------------------- the assistant's turns


def test_reasoning_text_and_calls_of_a_turn_are_one_message_and_are_split_again() -> None:
    items = [thought("hm"), wrote("so"), called("c1"), called("c2", "get", "{"), answered("c1"), answered("c2", "4")]
    messages = [
        assistant(reasoning_content="hm", content="so", tool_calls=[tool_call("c1"), tool_call("c2", "get", "{")]),
        tool("c1"),
        tool("c2", "4"),
    ]
    assert to_chat(*items) == messages
    kinds = [item.get("type", item.get("role")) for item in from_chat(*messages)]
    assert kinds == ["reasoning", "assistant", *["function_call"] * 2, *["function_call_output"] * 2]


@pytest.mark.parametrize(
    ("items", "messages"),
    [
        ([wrote("a1"), wrote("a2")], [assistant(content="a1"), assistant(content="a2")]),
        (
            [{"role": "assistant", "content": "a1"}, {"role": "assistant", "content": "a2"}],
            [assistant(content="a1"), assistant(content="a2")],
        ),
        (
            [thought("r1"), thought("r2"), wrote("a")],
            [assistant(reasoning_content="r1", content=""), assistant(reasoning_content="r2", content="a")],
        ),
        (
            [wrote("a1"), thought("r"), called("c"), answered("c")],
            [assistant(content="a1"), assistant(reasoning_content="r", tool_calls=[tool_call("c")]), tool("c")],
        ),
        ([thought("r"), user("go on")], [assistant(reasoning_content="r", content=""), user("go on")]),
    ],
)
def test_messages_of_the_assistant_that_were_two_stay_two(items: list[JsonObject], messages: list[JsonObject]) -> None:
    assert to_chat(*items) == messages
    assert to_chat(*from_chat(*messages)) == messages


@pytest.mark.parametrize(
    "messages",
    [
        [assistant(content="a"), assistant(tool_calls=[tool_call("c")]), tool("c")],
        [assistant(reasoning_content="r", content=""), assistant(content="a")],
        [assistant(content=""), assistant(content=""), user("hi")],
    ],
)
def test_messages_that_items_alone_would_not_tell_apart_are_kept_apart(messages: list[JsonObject]) -> None:
    assert to_chat(*from_chat(*messages)) == messages


def test_nothing_stands_between_a_call_and_its_output() -> None:
    items = [wrote("a"), called("c1"), thought("r"), wrote("b"), called("c2"), answered("c1"), answered("c2")]
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    calls = [tool_call("c1"), tool_call("c2")]
    assert to_chat(*items) == [
        assistant(reasoning_content="r", content=parts, tool_calls=calls),
        tool("c1"),
        tool("c2"),
    ]


def test_the_parts_of_an_assistants_message_stay_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert to_chat(wrote("a", "b")) == [assistant(content=parts)]
    assert to_chat(*from_chat(assistant(content=parts))) == [assistant(content=parts)]
    assert to_chat(*from_chat(assistant(content=parts[:1]))) == [assistant(content=parts[:1])]


def test_a_refusal_of_an_earlier_turn_is_sent_as_a_part() -> None:
    item = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}
    said = assistant(content=[{"type": "refusal", "refusal": "no"}])
    assert to_chat(item) == [said]
    assert from_chat(said)[0]["content"] == item["content"]
    assert from_chat(assistant(refusal="no")) == [item]


def test_citations_stay_with_their_text() -> None:
    citation = {"type": "url_citation", "url": "https://h", "title": "t", "start_index": 0, "end_index": 1}
    item = wrote("a")
    item["content"][0]["annotations"] = [citation]
    inner = {name: value for name, value in citation.items() if name != "type"}
    (message,) = to_chat(item)
    assert message == assistant(content="a", annotations=[{"type": "url_citation", "url_citation": inner}])
    assert from_chat(message)[0]["content"] == item["content"]


def test_the_phase_of_a_message_is_sent_along() -> None:
    assert to_chat({**wrote("a"), "phase": "commentary"}) == [assistant(content="a", phase="commentary")]


def test_a_message_of_the_assistant_may_be_given_as_chat_completions_has_it() -> None:
    items = [assistant(content="a", tool_calls=[tool_call("c1")]), called("c2"), answered("c1"), answered("c2")]
    messages = [assistant(content="a", tool_calls=[tool_call("c1"), tool_call("c2")]), tool("c1"), tool("c2")]
    assert to_chat(*items) == messages


# ------------------------------------------------------------------------------------------- calls


def test_what_a_model_wrote_into_a_call_is_not_judged() -> None:
    assert to_chat(called("c", "", "{broken")) == [assistant(tool_calls=[tool_call("c", "", "{broken")])]
    assert from_chat(assistant(tool_calls=[tool_call("c", "", "{broken")]))[0]["arguments"] == "{broken"


def test_custom_calls_and_their_outputs_have_their_own_form() -> None:
    items = [
        {"type": "custom_tool_call", "call_id": "c", "name": "sh", "input": "ls"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "a.txt"},
    ]
    call = {"id": "c", "type": "custom", "custom": {"name": "sh", "input": "ls"}}
    messages = [assistant(tool_calls=[call]), tool("c", "a.txt")]
    assert to_chat(*items) == messages
    assert from_chat(*messages) == items


def test_an_output_answers_the_latest_call_of_its_id() -> None:
    custom = {"id": "c", "type": "custom", "custom": {"name": "sh", "input": "ls"}}
    messages = [assistant(tool_calls=[custom]), tool("c"), assistant(tool_calls=[tool_call("c")]), tool("c")]
    kinds = [item["type"] for item in from_chat(*messages)]
    assert kinds == ["custom_tool_call", "custom_tool_call_output", "function_call", "function_call_output"]


def test_tool_outputs_are_strings_or_parts() -> None:
    image = {"type": "input_image", "image_url": "https://h/a.png"}
    parts = [{"type": "input_text", "text": "a"}, image]
    said = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "https://h/a.png"}}]
    assert to_chat(answered("c", "a")) == [tool("c", "a")]
    assert to_chat(answered("c", parts)) == [tool("c", said)]
    assert from_chat(tool("c", said)) == [answered("c", parts)]


def test_an_output_that_names_no_call_is_refused() -> None:
    with pytest.raises(NoChatForm, match="call_id"):
        to_chat({"type": "function_call_output", "output": "3"})


@pytest.mark.parametrize(
    "item",
    [
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "mcp_call", "id": "mcp_1", "server_label": "s", "name": "n", "arguments": "{}"},
        {"type": "item_reference", "id": "msg_1"},
        {"type": "from_the_future", "x": 1},
    ],
    ids=lambda item: item["type"],
)
def test_an_item_without_a_chat_form_is_refused_by_name_or_left_out_if_allowed(item: JsonObject) -> None:
    with pytest.raises(NoChatForm, match=rf"{item['type']}.*drop: \[{item['type']}\]") as refused:
        to_chat(user("hi"), item)
    assert refused.value.name == item["type"]
    assert to_chat(user("hi"), item, drop=(item["type"],)) == [user("hi")]


def test_a_reference_without_a_type_is_refused_by_name_too() -> None:
    with pytest.raises(NoChatForm, match="item_reference"):
        to_chat({"id": "msg_1"})


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ({"role": "function", "name": "f", "content": "3"}, "function"),
        (assistant(function_call={"name": "f", "arguments": "{}"}), "function_call"),
        (assistant(tool_calls=[{"id": "c", "type": "teleport"}]), "teleport"),
    ],
)
def test_a_message_without_a_responses_form_is_refused_by_name(message: JsonObject, name: str) -> None:
    with pytest.raises(NoResponsesForm) as refused:
        from_chat(message)
    assert refused.value.name == name
