"""The server over HTTP, as model workers and trainers use it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
import torch
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Application, Request

from contracts import chat
from examples.grpo_cpu.engine import Engine
from examples.grpo_cpu.model import Policy
from examples.grpo_cpu.server import Server
from examples.grpo_cpu.serving import EngineThread
from examples.grpo_cpu.tests.policies import small_policy
from examples.grpo_cpu.tokens import Tokenizer
from examples.grpo_cpu.weights import Weights

CONTEXT = 256
ASKED: dict[str, Any] = {"return_token_ids": True, "return_tokens_as_token_ids": True, "logprobs": True}
Client = TestClient[Request, Application]


def policy(tokenizer: Tokenizer, seed: int = 0) -> Policy:
    return small_policy(tokenizer.size, seed, CONTEXT)


@pytest.fixture
async def client(tokenizer: Tokenizer) -> AsyncIterator[Client]:
    engine = Engine(policy(tokenizer), 0, end=tokenizer.end)
    with EngineThread(engine) as thread:
        async with TestClient(TestServer(Server(thread, tokenizer, CONTEXT).app())) as client:
            yield client


async def complete(client: Client, content: str = "red", **options: Any) -> dict[str, Any]:
    body = {"model": "grpo_cpu", "messages": [{"role": "user", "content": content}], "max_tokens": 20, **options}
    async with client.post("/v1/chat/completions", json=body) as answer:
        document: dict[str, Any] = await answer.json()
        return document | {"status": answer.status}


async def test_the_token_fields_are_vllms_and_only_there_when_they_are_asked_for(
    client: Client, tokenizer: Tokenizer
) -> None:
    asked = await complete(client, **ASKED)
    (choice,) = asked["choices"]
    assert asked["prompt_token_ids"] == tokenizer.prompt([chat.UserMessage(role="user", content="red")])
    entries = choice["logprobs"]["content"]
    assert [entry["token"] for entry in entries] == [f"token_id:{token}" for token in choice["token_ids"]]
    assert all(entry.keys() == {"token", "logprob", "bytes", "top_logprobs"} for entry in entries)
    usage = {"prompt_tokens": len(asked["prompt_token_ids"]), "completion_tokens": len(choice["token_ids"])}
    assert asked["usage"] == usage | {"total_tokens": sum(usage.values())}
    plain = await complete(client)
    assert "prompt_token_ids" not in plain
    assert "token_ids" not in plain["choices"][0]
    assert plain["choices"][0]["logprobs"] is None


async def test_log_probabilities_are_those_of_the_weights(client: Client, tokenizer: Tokenizer) -> None:
    for content in ("red", "a longer question", "x"):
        answer = await complete(client, content, **ASKED)
        prompt, generated = answer["prompt_token_ids"], answer["choices"][0]["token_ids"]
        with torch.inference_mode():
            expected = policy(tokenizer).logprobs(torch.tensor([[*prompt, *generated]]))[0, len(prompt) - 1 :]
        recorded = [entry["logprob"] for entry in answer["choices"][0]["logprobs"]["content"]]
        assert recorded == pytest.approx(expected.tolist(), abs=1e-4)


async def test_weights_change_in_flight_and_the_spans_say_where(
    client: Client, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    weights = Weights(tmp_path)
    for version in range(1, 30):
        weights.save(version, policy(tokenizer, version).state_dict())

    async def swap() -> None:
        for version in range(1, 30):
            body = {"version": version, "path": str(weights.path(version))}
            async with client.post("/weights", json=body) as answer:
                assert await answer.json() == {"version": version}

    answers, _ = await asyncio.gather(
        asyncio.gather(*(complete(client, str(index), max_tokens=200, **ASKED) for index in range(40))), swap()
    )
    for answer in answers:
        spans = answer["policy_spans"]
        assert sum(count for _, count in spans) == len(answer["choices"][0]["token_ids"])
        assert [version for version, _ in spans] == sorted({version for version, _ in spans})
    assert max(len(answer["policy_spans"]) for answer in answers) > 1
    assert (await complete(client))["policy_spans"][0][0] == 29


async def test_weights_that_cannot_be_used_are_refused_and_the_ones_before_go_on(
    client: Client, tmp_path: Path
) -> None:
    (tmp_path / "broken.pt").write_bytes(b"no weights")
    for body in (
        {"version": 1, "path": str(tmp_path / "none.pt")},
        {"version": 1, "path": str(tmp_path / "broken.pt")},
        {},
    ):
        async with client.post("/weights", json=body) as answer:
            assert answer.status == 400
    assert (await complete(client))["policy_spans"][0][0] == 0


async def test_a_prompt_begins_with_the_prefix_that_is_required(client: Client, tokenizer: Tokenizer) -> None:
    first = await complete(client, **ASKED)
    prefix = [*first["prompt_token_ids"], *first["choices"][0]["token_ids"]]
    history = [{"role": "user", "content": "red"}, first["choices"][0]["message"], {"role": "user", "content": "on"}]
    answer = await complete(client, messages=history, required_prefix_token_ids=prefix, **ASKED)
    assert answer["prompt_token_ids"][: len(prefix)] == prefix


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"stream": True}, "stream"),
        ({"n": 2}, "one choice"),
        ({"top_p": 0.5}, "top_p"),
        ({"messages": [{"role": "user", "content": "x" * 300}]}, "maximum context length is 256"),
        ({"required_prefix_token_ids": [1, 2]}, "no message of the assistant"),
        ({"messages": "red"}, "messages"),
    ],
)
async def test_what_it_cannot_do_it_says(client: Client, options: dict[str, Any], said: str) -> None:
    answer = await complete(client, **options)
    assert answer["status"] == 400
    assert said in answer["error"]["message"]


async def test_a_client_that_goes_away_leaves_the_engine_free(client: Client) -> None:
    asking = [asyncio.create_task(complete(client, max_tokens=200)) for _ in range(20)]
    await asyncio.sleep(0)
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    assert (await complete(client))["status"] == 200
    async with asyncio.timeout(30):
        while (await (await client.get("/load")).json())["running"]:  # noqa: ASYNC110 - it has no event for that
            await asyncio.sleep(0.01)


async def test_openais_own_client_understands_it(client: Client) -> None:
    base = str(client.make_url("/v1"))
    async with openai.AsyncOpenAI(base_url=base, api_key="none") as own:
        answer = await own.chat.completions.create(
            model="grpo_cpu", messages=[{"role": "user", "content": "red"}], max_completion_tokens=5
        )
        assert answer.usage is not None
        assert (await own.models.list()).data[0].id == "grpo_cpu"
