"""How an engine's completion becomes a response, and a response a completion."""

from typing import Any

import openai.types.chat
import openai.types.responses
import pytest

from contracts import chat
from contracts.base import JsonObject
from contracts.convert import TOKEN_FIELDS, request_to_chat, response_from_chat, response_to_chat
from contracts.errors import NoChatForm, NoResponsesForm
from contracts.responses import Response, ResponseCreateParams


def completion(message: JsonObject | None = None, choice: JsonObject | None = None, **fields: object) -> JsonObject:
    said = {"role": "assistant", **({"content": "hi"} if message is None else message)}
    only = {"index": 0, "finish_reason": "stop", "message": said, **(choice or {})}
    base = {"id": "chatcmpl-7", "object": "chat.completion", "created": 5, "model": "m", "choices": [only]}
    return base | fields


def from_chat(document: JsonObject, **options: Any) -> JsonObject:
    return response_from_chat(chat.ChatCompletion.model_validate(document), **options).to_dict()


def to_chat(output: list[JsonObject], **fields: object) -> JsonObject:
    document = {"id": "resp_7", "object": "response", "created_at": 5, "model": "m", "output": output, **fields}
    return response_to_chat(Response.model_validate(document)).to_dict()


def wrote(*texts: str, **fields: object) -> JsonObject:
    parts = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"type": "message", "role": "assistant", "content": parts, **fields}


CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}

# ------------------------------------------------------------------------------------------- Chat -> Responses


def test_a_reply_becomes_reasoning_then_message_then_calls_with_ids_from_the_completion() -> None:
    custom = {"id": "c2", "type": "custom", "custom": {"name": "sh", "input": "ls"}}
    message = {"content": "so", "reasoning_content": "hm", "tool_calls": [CALL, custom]}
    done = {"status": "completed"}
    assert from_chat(completion(message)) == {
        "id": "resp_7",
        "object": "response",
        "created_at": 5,
        "model": "m",
        "status": "completed",
        "output": [
            {
                "type": "reasoning",
                "id": "rs_7_0",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": "hm"}],
                **done,
            },
            wrote("so", id="msg_7_1", **done),
            {"type": "function_call", "id": "fc_7_2", "call_id": "c1", "name": "add", "arguments": "{}", **done},
            {"type": "custom_tool_call", "id": "ctc_7_3", "call_id": "c2", "name": "sh", "input": "ls", **done},
        ],
    }


def test_a_given_name_stands_for_the_engines_id() -> None:
    response = from_chat(completion(id=""), name="r1-00000-00-m_0")
    assert (response["id"], response["output"][0]["id"]) == ("resp_r1-00000-00-m_0", "msg_r1-00000-00-m_0_0")


def test_an_empty_reply_is_one_empty_message() -> None:
    contents: list[object] = [None, "", []]
    for content in contents:
        assert from_chat(completion({"content": content}))["output"] == [
            wrote(id="msg_7_0", status="completed"),
        ]


@pytest.mark.parametrize("content", [None, "", []])
def test_beside_reasoning_or_calls_an_empty_content_is_no_message(content: object) -> None:
    assert [i["type"] for i in from_chat(completion({"content": content, "tool_calls": [CALL]}))["output"]] == [
        "function_call"
    ]
    assert [i["type"] for i in from_chat(completion({"content": content, "reasoning": "a"}))["output"]] == ["reasoning"]


@pytest.mark.parametrize(
    ("finish", "status", "reason"),
    [
        ("stop", "completed", None),
        ("tool_calls", "completed", None),
        ("function_call", "completed", None),
        (None, "completed", None),
        ("length", "incomplete", "max_output_tokens"),
        ("content_filter", "incomplete", "content_filter"),
        ("abort", "incomplete", "abort"),
    ],
)
def test_how_a_reply_ended(finish: str | None, status: str, reason: str | None) -> None:
    response = from_chat(completion({"content": "so", "tool_calls": [CALL]}, {"finish_reason": finish}))
    assert response["status"] == status
    assert response.get("incomplete_details") == (None if reason is None else {"reason": reason})
    assert [item["status"] for item in response["output"]] == ["completed", status], "what was cut off is the last item"


def test_a_refusal_is_kept() -> None:
    (message,) = from_chat(completion({"content": None, "refusal": "no"}))["output"]
    assert message["content"] == [{"type": "refusal", "refusal": "no"}]
    (message,) = from_chat(completion({"content": "a", "refusal": "no"}))["output"]
    assert [part["type"] for part in message["content"]] == ["output_text", "refusal"]


@pytest.mark.parametrize(
    "call",
    [
        {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{broken"}},
        {"id": "c", "type": "function", "function": {"name": "", "arguments": ""}},
        {"id": "c", "type": "function", "function": {"name": None, "arguments": None}},
        {"id": "c", "type": "function", "function": {}},
    ],
)
def test_broken_calls_pass_as_they_are(call: JsonObject) -> None:
    (item,) = from_chat(completion({"content": None, "tool_calls": [call]}))["output"]
    assert item["arguments"] == (call["function"].get("arguments") or "")
    assert item["name"] == (call["function"].get("name") or "")


@pytest.mark.parametrize("missing", [{}, {"id": None}, {"id": ""}])
def test_calls_without_ids_get_ones_that_their_outputs_can_name(missing: JsonObject) -> None:
    call = {"type": "function", "function": {"name": "add", "arguments": "{}"}, **missing}
    response = from_chat(completion({"content": None, "tool_calls": [call, call]}))
    assert [item["call_id"] for item in response["output"]] == ["call_7_0", "call_7_1"]


def test_an_empty_list_of_calls_is_none() -> None:
    assert [item["type"] for item in from_chat(completion({"content": "a", "tool_calls": []}))["output"]] == ["message"]


@pytest.mark.parametrize(
    ("usage", "cached", "reasoned"),
    [
        ({}, {}, {}),
        ({"prompt_tokens_details": None, "completion_tokens_details": None}, {}, {}),
        ({"prompt_tokens_details": {"cached_tokens": None}}, {}, {}),
        (
            {"prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 2}},
            {"cached_tokens": 4},
            {"reasoning_tokens": 2},
        ),
        ({"cached_input_tokens": 4}, {"cached_tokens": 4}, {}),
        ({"cache_read_input_tokens": 4}, {"cached_tokens": 4}, {}),
        ({"prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 6}, {"cached_tokens": 4}, {}),
        ({"reasoning_output_tokens": 2}, {}, {"reasoning_tokens": 2}),
        ({"prompt_tokens_details": {"cached_tokens": 0}, "cached_input_tokens": 4}, {"cached_tokens": 0}, {}),
        ({"prompt_tokens_details": {"cache_write_tokens": 3}}, {"cache_write_tokens": 3}, {}),
        ({"prompt_tokens_details": {"audio_tokens": 3}}, {"audio_tokens": 3}, {}),
    ],
)
def test_usage_keeps_every_count_and_has_those_that_the_api_always_sends(
    usage: JsonObject, cached: JsonObject, reasoned: JsonObject
) -> None:
    """The openai package, whose types are strict here, reads it whatever the engine left out."""
    counts = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    said = from_chat(completion(usage=counts | usage))["usage"]
    assert (said["input_tokens"], said["output_tokens"], said["total_tokens"]) == (10, 5, 15)
    assert said["input_tokens_details"] == {"cached_tokens": 0, "cache_write_tokens": 0} | cached
    assert said["output_tokens_details"] == {"reasoning_tokens": 0} | reasoned
    openai.types.responses.ResponseUsage.model_validate(said, strict=True)
    aliases = {name: value for name, value in usage.items() if not name.endswith("_details")}
    assert aliases.items() <= said.items()


def test_a_completion_without_usage_has_none() -> None:
    assert "usage" not in from_chat(completion())


def test_log_probabilities_stand_on_the_text_or_with_the_choice_where_there_is_none() -> None:
    tokens = [{"token": "hi", "logprob": -0.5, "bytes": [104, 105], "top_logprobs": [{"token": "a", "logprob": -1}]}]
    logprobs = {"logprobs": {"content": tokens, "refusal": None}}
    assert from_chat(completion(choice=logprobs))["output"][0]["content"][0]["logprobs"] == tokens
    response = from_chat(completion({"content": None, "tool_calls": [CALL]}, logprobs))
    assert response["choice"] == {"logprobs": {"content": tokens}}
    assert from_chat(completion(choice={"logprobs": None})) == from_chat(completion())


def test_citations_are_kept_in_the_form_of_the_responses_api() -> None:
    inner = {"url": "https://h", "title": "t", "start_index": 0, "end_index": 2}
    (message,) = from_chat(
        completion({"content": "hi", "annotations": [{"type": "url_citation", "url_citation": inner}]})
    )["output"]
    assert message["content"][0]["annotations"] == [{"type": "url_citation", **inner}]


def test_citations_of_a_message_without_text_stay_on_the_message() -> None:
    citations = [{"type": "url_citation", "url_citation": {"url": "https://h"}}]
    response = from_chat(completion({"content": None, "tool_calls": [CALL], "annotations": citations}))
    request = ResponseCreateParams.model_validate({"input": response["output"]})
    assert request_to_chat(request).to_dict()["messages"][0]["annotations"] == citations


def test_what_an_engine_says_beside_the_answer_is_kept_and_nulls_are_nothing() -> None:
    document = completion(
        {"content": "hi", "x_message": 1, "audio": None},
        {"stop_reason": 151645, "x_null": None},
        system_fingerprint="fp",
        service_tier="default",
        metadata={"a": "b"},
        kv_transfer_params={"a": 1},
        timings=None,
    )
    response = from_chat(document)
    assert response["output"][0]["x_message"] == 1
    assert response["choice"] == {"stop_reason": 151645}
    assert {"system_fingerprint": "fp", "service_tier": "default", "metadata": {"a": "b"}}.items() <= response.items()
    assert response["kv_transfer_params"] == {"a": 1}
    assert "timings" not in response
    assert "x_null" not in response["choice"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [1, {"a": float("nan")}]])
@pytest.mark.parametrize("place", ["completion", "choice"])
def test_a_number_that_json_does_not_have_is_refused_by_name(place: str, value: object) -> None:
    document = completion(timing=value) if place == "completion" else completion(choice={"timing": value})
    with pytest.raises(NoResponsesForm, match=r"(timing|choice) holds NaN or an infinite number"):
        from_chat(document)


def test_fields_of_a_message_that_says_only_calls_have_an_empty_message_to_stand_on() -> None:
    response = from_chat(completion({"content": None, "tool_calls": [CALL], "reasoning_details": [{"data": "x"}]}))
    message, call = response["output"]
    assert (message["content"], message["reasoning_details"], call["type"]) == ([], [{"data": "x"}], "function_call")
    request = ResponseCreateParams.model_validate({"input": response["output"]})
    assert request_to_chat(request).to_dict()["messages"] == [
        {"role": "assistant", "tool_calls": [CALL], "reasoning_details": [{"data": "x"}]}
    ]


def test_token_fields_are_left_for_the_model_worker_to_read_from_the_completion() -> None:
    message = {"content": "hi", "generation_token_ids": [1], "generation_log_probs": [-0.5]}
    document = completion(message, {"token_ids": [1], "routed_experts": "nrlre1:…"}, prompt_token_ids=[1, 2])
    assert from_chat(document) == from_chat(completion())
    parsed = chat.ChatCompletion.model_validate(document)
    said = (parsed, parsed.choices[0], parsed.choices[0].message)
    assert {name for model in said for name in model.model_extra or {}} <= TOKEN_FIELDS


def test_with_the_request_its_options_are_repeated_as_the_api_does() -> None:
    tool = {"type": "function", "name": "add"}
    request = {
        "input": "hi",
        "instructions": "be brief",
        "tools": [tool],
        "temperature": 0.5,
        "reasoning": {"effort": "low"},
    }
    response = from_chat(completion(), request=ResponseCreateParams.model_validate(request))
    assert {name: response[name] for name in request if name != "input"} == {
        name: value for name, value in request.items() if name != "input"
    }
    assert (response["tool_choice"], response["parallel_tool_calls"]) == ("auto", True)
    assert "tools" not in from_chat(completion()), "without it the log does not carry the tools again"


@pytest.mark.parametrize("count", [0, 2])
def test_a_completion_has_exactly_one_choice(count: int) -> None:
    document = completion()
    with pytest.raises(NoResponsesForm, match=f"{count} choices") as refused:
        from_chat(document | {"choices": document["choices"] * count})
    assert refused.value.name == "choices"


def test_the_openai_package_reads_what_is_made_both_ways() -> None:
    details = {
        "prompt_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3, **details}
    message = {"content": "so", "reasoning_content": "hm", "tool_calls": [CALL]}
    response = from_chat(completion(message, usage=usage), request=ResponseCreateParams(input="hi"))
    read = openai.types.responses.Response.model_validate(response, strict=True)
    assert [item.type for item in read.output] == ["reasoning", "message", "function_call"]
    again = response_to_chat(Response.model_validate(response)).to_dict()
    assert openai.types.chat.ChatCompletion.model_validate(again, strict=True).choices[0].message.content == "so"


# ------------------------------------------------------------------------------------------- Responses -> Chat


def test_a_response_becomes_one_choice_with_one_message() -> None:
    output = [
        {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]},
        wrote("so"),
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"},
    ]
    usage = {
        "input_tokens": 10, "output_tokens": 5, "total_tokens": 15, "input_tokens_details": {"cached_tokens": 4},
        "output_tokens_details": {"reasoning_tokens": 2},
    }  # fmt: skip
    assert to_chat(output, status="completed", usage=usage, created_at=5.5) == {
        "id": "chatcmpl-7",
        "object": "chat.completion",
        "created": 5,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {"role": "assistant", "reasoning_content": "hm", "content": "so", "tool_calls": [CALL]},
            }
        ],
        "usage": {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "total_tokens": 15,
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 2},
        },
    }


def test_the_content_of_a_completion_is_a_string_or_null() -> None:
    assert to_chat([wrote("a", "b"), wrote("c")])["choices"][0]["message"]["content"] == "ab\n\nc"
    refusal = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}
    message = to_chat([refusal])["choices"][0]["message"]
    assert message == {"role": "assistant", "content": None, "refusal": "no"}
    assert to_chat([])["choices"][0]["message"] == {"role": "assistant", "content": None}


def test_further_fields_of_the_parts_of_a_reply_stand_on_its_message() -> None:
    item = wrote("a", "b")
    item["content"][1]["x_part"] = 1
    assert to_chat([item])["choices"][0]["message"] == {"role": "assistant", "content": "ab", "x_part": 1}


def test_a_citation_moves_with_its_text() -> None:
    citation = {"type": "url_citation", "url": "https://h", "title": "t", "start_index": 0, "end_index": 1}
    second = wrote("x", "c")
    second["content"][1]["annotations"] = [citation]
    message = to_chat([wrote("ab"), second])["choices"][0]["message"]
    assert message["content"] == "ab\n\nxc"
    moved = message["annotations"][0]["url_citation"]
    assert message["content"][moved["start_index"] : moved["end_index"]] == "c"


@pytest.mark.parametrize(
    ("fields", "finish"),
    [
        ({"status": "completed"}, "stop"),
        ({}, "stop"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "content_filter"),
        ({"status": "incomplete", "incomplete_details": {"reason": "abort"}}, "abort"),
    ],
)
def test_how_a_response_ended(fields: JsonObject, finish: str) -> None:
    assert to_chat([wrote("a")], **fields)["choices"][0]["finish_reason"] == finish


def test_a_failed_response_has_no_completion() -> None:
    with pytest.raises(NoChatForm, match="the engine fell over"):
        to_chat([], status="failed", error={"code": "server_error", "message": "the engine fell over"})


@pytest.mark.parametrize(
    "item",
    [
        {"role": "user", "content": "go on"},
        {"type": "function_call_output", "call_id": "c1", "output": "3"},
        {"type": "web_search_call", "id": "ws", "status": "completed"},
    ],
)
def test_a_response_that_is_more_than_one_reply_is_refused(item: JsonObject) -> None:
    with pytest.raises(NoChatForm):
        to_chat([wrote("a"), item])
