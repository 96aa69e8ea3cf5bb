"""openai_model against a real HTTP server."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from components.models.base import ModelCall
from components.models.engine import EngineConfig
from components.models.errors import ModelError
from components.models.openai_model.app import OpenAIModel
from contracts.responses import Response, ResponseCreateParams

CALL = ModelCall(rollout_id="a-rollout", call_key="m_0")
REPLY: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "status": "completed",
    "output": [{"type": "message", "role": "assistant", "id": "msg_1", "content": [], "engine_field": [1, 2]}],
    "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
    "timings": {"predicted_ms": 4.5},
}


class Endpoint:
    """A Responses endpoint that keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.reply = REPLY
        self.url = ""

    async def respond(self, request: web.Request) -> web.Response:
        self.asked.append(await request.json())
        return web.json_response(self.reply)


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    endpoint = Endpoint()
    app = web.Application()
    app.router.add_post("/v1/responses", endpoint.respond)
    async with TestServer(app) as server:
        endpoint.url = str(server.make_url("/v1"))
        yield endpoint


async def call(endpoint: Endpoint, request: dict[str, Any], **config: Any) -> Response:
    model = OpenAIModel(EngineConfig.model_validate({"base_url": endpoint.url, **config}))
    await model.start()
    try:
        return await model.responses(ResponseCreateParams.model_validate(request), CALL)
    finally:
        await model.stop()


async def test_request_and_reply_pass_unchanged(endpoint: Endpoint) -> None:
    request = {"input": [{"role": "user", "content": "hi"}], "temperature": 1, "new_field": {"a": None}}
    response = await call(endpoint, request)
    assert endpoint.asked == [request]
    assert json.loads(response.to_json()) == REPLY


async def test_the_configs_model_and_overrides_win_over_the_request_and_the_defaults_do_not(endpoint: Endpoint) -> None:
    await call(
        endpoint,
        {"input": "hi", "model": "theirs", "temperature": 0.1, "max_output_tokens": 5},
        model="ours",
        defaults={"max_output_tokens": 100, "top_p": 0.9},
        overrides={"temperature": 0.7},
    )
    assert endpoint.asked == [
        {"input": "hi", "model": "ours", "temperature": 0.7, "top_p": 0.9, "max_output_tokens": 5}
    ]


async def test_extra_body_is_sent_and_wins(endpoint: Endpoint) -> None:
    await call(endpoint, {"input": "hi", "store": True}, extra_body={"store": False, "top_k": 20})
    assert endpoint.asked == [{"input": "hi", "store": False, "top_k": 20}]


async def test_a_stream_is_never_asked_for(endpoint: Endpoint) -> None:
    await call(endpoint, {"input": "hi", "stream": True, "stream_options": {"include_obfuscation": False}})
    assert endpoint.asked == [{"input": "hi"}]


async def test_a_background_request_is_refused(endpoint: Endpoint) -> None:
    with pytest.raises(ModelError, match="leave `background` out") as raised:
        await call(endpoint, {"input": "hi", "background": True})
    assert raised.value.kind == "bad_request"
    assert endpoint.asked == []


async def test_a_failed_response_is_an_error_with_the_engines_reason(endpoint: Endpoint) -> None:
    endpoint.reply = {**REPLY, "status": "failed", "error": {"code": "server_error", "message": "out of memory"}}
    with pytest.raises(ModelError, match="server_error: out of memory"):
        await call(endpoint, {"input": "hi"})


@pytest.mark.parametrize(
    ("status", "kind", "why"),
    [
        ("queued", "bad_request", "leave `background` out of extra_body"),
        ("in_progress", "bad_request", "leave `background` out of extra_body"),
        ("cancelled", "unavailable", "it does not say why"),
        ("failed", "unavailable", "it does not say why"),
        ("paused", "unavailable", "check that base_url leads to a Responses endpoint"),
    ],
)
async def test_a_response_that_has_not_come_to_its_end_is_no_reply(
    endpoint: Endpoint, status: str, kind: str, why: str
) -> None:
    endpoint.reply = {**REPLY, "status": status, "output": []}
    with pytest.raises(ModelError, match=f"has status `{status}`: .*{why}") as raised:
        await call(endpoint, {"input": "hi"})
    assert raised.value.kind == kind


@pytest.mark.parametrize("status", [{}, {"status": None}, {"status": "completed"}, {"status": "incomplete"}])
async def test_a_response_that_has_come_to_its_end_is_a_reply(
    endpoint: Endpoint, status: dict[str, str | None]
) -> None:
    endpoint.reply = {name: value for name, value in REPLY.items() if name != "status"} | status
    response = await call(endpoint, {"input": "hi"})
    assert json.loads(response.to_json()) == endpoint.reply


async def test_a_reply_that_is_no_response_is_told_with_what_is_wrong(endpoint: Endpoint) -> None:
    endpoint.reply = {**REPLY, "usage": {"input_tokens": "many"}}
    with pytest.raises(ModelError, match=r"usage\.input_tokens: .*base_url"):
        await call(endpoint, {"input": "hi"})
