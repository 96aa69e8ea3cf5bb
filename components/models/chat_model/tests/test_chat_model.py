"""chat_model against a real HTTP server."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from pydantic import ValidationError

from components.models.base import ModelCall
from components.models.chat_model.app import ChatModel, ChatModelConfig
from components.models.errors import ModelError
from components.models.tokens import Prefix
from contracts.responses import OutputMessage, ReasoningItem, Response, ResponseCreateParams
from contracts.tokens import pack_ids

CALL = ModelCall(rollout_id="a-rollout", call_key="m_0")
TOOL = {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": True}


def completion(message: dict[str, Any], finish_reason: str = "stop", **fields: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": finish_reason, "message": {"role": "assistant", **message}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
        **fields,
    }


class Endpoint:
    """A Chat Completions endpoint that keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.reply = completion({"content": "hello"})
        self.status = 200
        self.url = ""

    async def respond(self, request: web.Request) -> web.Response:
        self.asked.append(await request.json())
        return web.json_response(self.reply, status=self.status)


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    endpoint = Endpoint()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", endpoint.respond)
    async with TestServer(app) as server:
        endpoint.url = str(server.make_url("/v1"))
        yield endpoint


async def call(endpoint: Endpoint, request: dict[str, Any], **config: Any) -> Response:
    model = ChatModel(ChatModelConfig.model_validate({"base_url": endpoint.url, **config}))
    await model.start()
    try:
        return await model.responses(ResponseCreateParams.model_validate(request), CALL)
    finally:
        await model.stop()


async def test_a_request_is_said_in_messages_and_the_reply_in_items(endpoint: Endpoint) -> None:
    request = {"instructions": "Be kind.", "input": "hi", "tools": [TOOL], "max_output_tokens": 9}
    response = await call(endpoint, request, model="ours")
    (asked,) = endpoint.asked
    assert asked["messages"] == [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}]
    assert asked["tools"][0]["function"]["name"] == "add"
    assert (asked["max_completion_tokens"], asked["model"]) == (9, "ours")
    assert response.output_text == "hello"
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (3, 4)


async def test_reasoning_and_parallel_calls_come_back_as_items(endpoint: Endpoint) -> None:
    calls = [
        {"id": f"c{number}", "type": "function", "function": {"name": "add", "arguments": f'{{"n": {number}}}'}}
        for number in range(2)
    ]
    message = {"content": None, "reasoning_content": "two sums", "tool_calls": calls}
    endpoint.reply = completion(message, "tool_calls")
    response = await call(endpoint, {"input": "hi", "tools": [TOOL]})
    assert isinstance(response.output[0], ReasoningItem)
    assert [(made.call_id, made.arguments) for made in response.function_calls] == [
        ("c0", '{"n": 0}'),
        ("c1", '{"n": 1}'),
    ]


async def test_a_reply_that_was_cut_off_is_incomplete(endpoint: Endpoint) -> None:
    endpoint.reply = completion({"content": "hel"}, "length")
    response = await call(endpoint, {"input": "hi"})
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"


async def test_the_style_of_the_engine_is_followed(endpoint: Endpoint) -> None:
    endpoint.reply = completion({"content": "<think>hm</think>hello"})
    style = {"reasoning_style": "think_tags", "max_tokens_field": "max_tokens"}
    response = await call(endpoint, {"input": "hi", "max_output_tokens": 9}, style=style)
    assert endpoint.asked[0]["max_tokens"] == 9
    assert [type(item) for item in response.output] == [ReasoningItem, OutputMessage]


async def test_overrides_and_extra_body_are_applied_last(endpoint: Endpoint) -> None:
    await call(
        endpoint,
        {"input": "hi", "temperature": 0.1, "stream": True},
        overrides={"temperature": 0.9},
        defaults={"top_p": 0.5},
        extra_body={"top_k": 4, "chat_template_kwargs": {"enable_thinking": False}},
    )
    (asked,) = endpoint.asked
    assert asked == {
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 0.9,
        "top_p": 0.5,
        "top_k": 4,
        "chat_template_kwargs": {"enable_thinking": False},
    }


async def test_what_chat_completions_cannot_say_is_refused_by_name_before_it_is_sent(endpoint: Endpoint) -> None:
    with pytest.raises(ModelError, match="previous_response_id") as raised:
        await call(endpoint, {"input": "hi", "previous_response_id": "resp_0"})
    assert (raised.value.kind, raised.value.details["name"]) == ("bad_request", "previous_response_id")
    assert endpoint.asked == []


async def test_a_prompt_that_does_not_fit_is_a_context_length_error(endpoint: Endpoint) -> None:
    endpoint.status = 400
    endpoint.reply = {"error": {"message": "This model's maximum context length is 10 tokens.", "code": 400}}
    with pytest.raises(ModelError) as raised:
        await call(endpoint, {"input": "hi"})
    assert raised.value.kind == "context_length"


@pytest.mark.parametrize(
    "reply",
    [{"id": "x", "object": "list"}, completion({"content": "a"}) | {"choices": []}, ["no", "object"]],
    ids=["another document", "no choice", "a list"],
)
async def test_a_reply_that_is_no_completion_is_told_with_what_is_wrong(endpoint: Endpoint, reply: Any) -> None:
    endpoint.reply = reply
    with pytest.raises(ModelError, match="cannot be read"):
        await call(endpoint, {"input": "hi"})


async def test_calls_without_an_id_get_different_ids_in_different_turns(endpoint: Endpoint) -> None:
    tool_call = {"id": "", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    endpoint.reply = completion({"tool_calls": [tool_call]}) | {"id": ""}
    model = ChatModel(ChatModelConfig.model_validate({"base_url": endpoint.url}))
    await model.start()
    request = ResponseCreateParams.model_validate({"input": "hi", "tools": [TOOL]})
    calls = [ModelCall(rollout_id="a-rollout", call_key=f"m_{number}") for number in range(2)]
    replies = [await model.responses(request, one) for one in calls]
    await model.stop()
    assert len({reply.function_calls[0].call_id for reply in replies}) == 2


async def test_tokens_are_asked_for_and_nothing_that_a_request_says_of_them_counts(endpoint: Endpoint) -> None:
    request = {"input": [{"role": "user", "content": "hi", "prompt_token_ids": [1]}], "return_token_ids": False}
    await call(endpoint, {**request, "input_ids": [1], "top_logprobs": 0}, token_ids=True, stream=True)
    (asked,) = endpoint.asked
    assert asked == {
        "messages": [{"role": "user", "content": "hi"}],
        "logprobs": True,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_log_probabilities_that_the_requester_wants_keep_their_texts(endpoint: Endpoint) -> None:
    await call(endpoint, {"input": "hi", "top_logprobs": 3}, token_ids=True)
    (asked,) = endpoint.asked
    assert (asked["logprobs"], asked["top_logprobs"], asked["return_token_ids"]) == (True, 3, True)
    assert "return_tokens_as_token_ids" not in asked


@pytest.mark.parametrize(("is_latest", "sent"), [(True, [7, 8, 9]), (False, None)])
async def test_the_tokens_so_far_are_sent_where_the_last_that_was_written_is_among_them(
    endpoint: Endpoint, is_latest: bool, sent: list[int] | None
) -> None:
    async def prefix() -> Prefix:
        return Prefix(pack_ids([7, 8, 9]), 1, is_latest=is_latest)

    config = {"base_url": endpoint.url, "token_ids": True, "required_prefix": True}
    model = ChatModel(ChatModelConfig.model_validate(config))
    await model.start()
    call = ModelCall(rollout_id="a-rollout", call_key="m_0", prefix=prefix)
    await model.responses(ResponseCreateParams.model_validate({"input": "hi"}), call)
    await model.stop()
    assert endpoint.asked[0].get("required_prefix_token_ids") == sent


def test_a_prefix_without_recorded_tokens_is_refused() -> None:
    with pytest.raises(ValidationError, match="without token_ids none are recorded"):
        ChatModelConfig(base_url=("http://127.0.0.1:1/v1",), required_prefix=True)
