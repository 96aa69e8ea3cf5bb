"""Chat Completions as engines speak them: their extra fields are kept, older and newer forms are taken."""

import json
from typing import Any, TypeVar

import pytest
from pydantic import ValidationError

from contracts import chat
from contracts.base import ApiModel

M = TypeVar("M", bound=ApiModel)


def parse(model: type[M], document: dict[str, Any]) -> M:
    parsed = model.model_validate_json(json.dumps(document))
    assert json.loads(parsed.to_json()) == document
    return parsed


def completion(message: dict[str, Any], **more: object) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], **more}


def test_vllm_reply() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, "prompt_tokens_details": None}
    document = completion(
        {"content": None, "reasoning": "hm", "reasoning_content": "hm", "tool_calls": [], "refusal": None},
        prompt_token_ids=[1, 2, 3],
        prompt_logprobs=None,
        kv_transfer_params=None,
        usage=usage,
    )
    document["choices"][0] |= {"stop_reason": 128009, "token_ids": [4, 5], "finish_reason": "abort", "logprobs": None}
    reply = parse(chat.ChatCompletion, document)
    assert reply.choices[0].message.reasoning == "hm"
    assert reply.choices[0].finish_reason == "abort"
    assert reply.model_extra is not None
    assert reply.model_extra["prompt_token_ids"] == [1, 2, 3]


def test_llama_cpp_reply() -> None:
    document = completion(
        {"content": "4"}, timings={"prompt_n": 12, "predicted_per_second": 101.5}, system_fingerprint="b6000"
    )
    assert parse(chat.ChatCompletion, document).choices[0].message.content == "4"


def test_log_probabilities_of_tokens() -> None:
    document = completion({"content": "hi"})
    token = {"token": "token_id:17", "logprob": -0.25, "bytes": None, "top_logprobs": []}
    document["choices"][0]["logprobs"] = {"content": [token], "refusal": None}
    logprobs = parse(chat.ChatCompletion, document).choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert logprobs.content[0].logprob == -0.25


def test_reply_s_message_goes_into_the_next_request_as_it_is() -> None:
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"id": "c2", "type": "custom", "custom": {"name": "g", "input": "x"}},
        {"id": "c3", "type": "telepathy", "thought": 1},
    ]
    message = parse(chat.ChatCompletion, completion({"content": None, "tool_calls": calls})).choices[0].message
    assert [type(call) for call in message.tool_calls or []] == [
        chat.FunctionToolCall,
        chat.CustomToolCall,
        chat.UnknownToolCall,
    ]
    request = chat.ChatCompletionParams(model="m", messages=[chat.UserMessage(role="user", content="hi"), message])
    assert request.to_dict()["messages"][1] == {"role": "assistant", "content": None, "tool_calls": calls}


def test_messages_of_all_roles_and_parts_of_all_types() -> None:
    parts = [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
        {"type": "file", "file": {"file_id": "f"}},
        {"type": "video_url", "video_url": {"url": "file:///v.mp4"}},
        {"type": "image_embeds", "image_embeds": "AA=="},
    ]
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "s"},
        {"role": "developer", "content": [{"type": "text", "text": "d"}]},
        {"role": "user", "content": parts, "name": "u"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}], "reasoning_content": "hm"},
        {"role": "tool", "content": [{"type": "text", "text": "5"}], "tool_call_id": "c"},
        {"role": "function", "content": "5", "name": "f"},
    ]
    request = parse(chat.ChatCompletionParams, {"messages": messages})
    assert [message.role for message in request.messages] == [message["role"] for message in messages]
    user = request.messages[2]
    assert isinstance(user, chat.UserMessage)
    assert [type(part) for part in user.content] == [
        chat.TextPart,
        chat.ImagePart,
        chat.AudioPart,
        chat.FilePart,
        chat.VideoPart,
        chat.UnknownPart,
    ]


def test_message_of_an_unknown_role_is_refused() -> None:
    with pytest.raises(ValidationError, match="`role`, one of: system, developer, user, assistant, tool, function"):
        chat.ChatCompletionParams.model_validate({"messages": [{"role": "wizard", "content": "x"}]})


def test_request_with_engines_own_options() -> None:
    document = {
        "messages": [],
        "model": "m",
        "max_tokens": 5,
        "max_completion_tokens": 5,
        "temperature": 1,
        "top_k": 20,
        "chat_template_kwargs": {"enable_thinking": False},
        "return_tokens_as_token_ids": True,
        "tools": [
            {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": True}},
            {"type": "custom", "custom": {"name": "g", "format": {"type": "text"}}},
        ],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    request = parse(chat.ChatCompletionParams, document)
    assert isinstance(request.tool_choice, chat.FunctionChoice)
    assert isinstance(request.response_format, chat.JsonSchemaFormat)
    assert request.response_format.json_schema.schema_ == {"type": "object"}


@pytest.mark.parametrize("code", [400, "context_length_exceeded", None])
def test_error_body(code: int | str | None) -> None:
    document = {"error": {"message": "too long", "type": "BadRequestError", "param": None, "code": code}}
    assert parse(chat.ErrorBody, document).error.message == "too long"
