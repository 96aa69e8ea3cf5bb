"""What a scripted model says, and when."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from itertools import pairwise
from random import Random
from typing import Any

import openai.types.responses
import pytest

from components.models.base import ModelCall
from components.models.errors import ModelError
from components.models.scripted_model.app import ScriptedModel
from components.models.scripted_model.script import ScriptedModelConfig
from components.models.scripted_model.tokens import scripted_tokens
from components.models.tokens import EngineTokens
from contracts.responses import FunctionCall, Response, ResponseCreateParams, function_call_output, user_message
from contracts.tokens import unpack_ids, unpack_logprobs


def model(**config: Any) -> ScriptedModel:
    return ScriptedModel(ScriptedModelConfig.model_validate(config))


def request(*texts: str) -> ResponseCreateParams:
    return ResponseCreateParams(input=[user_message(text) for text in texts])


def call(key: str = "m_0", wait: Callable[[float], Awaitable[None]] = asyncio.sleep) -> ModelCall:
    return ModelCall(rollout_id="r", call_key=key, wait=wait)


async def ask(scripted: ScriptedModel, asked: ResponseCreateParams, key: str = "m_0") -> Response:
    return await scripted.responses(asked, call(key))


async def test_turns_follow_each_other_as_the_conversation_grows_and_the_last_one_repeats() -> None:
    scripted = model(turns=[{"calls": [{"name": "add", "arguments": {"a": 1}}]}, {"text": "5"}])
    asked = request("add")
    said = []
    for _ in range(3):
        reply = await ask(scripted, asked)
        said.append([item.type for item in reply.output])
        assert isinstance(asked.input, list)
        outputs = [function_call_output(made.call_id, "5") for made in reply.function_calls]
        asked = ResponseCreateParams(input=[*asked.input, *reply.output, *outputs])
    assert said == [["function_call"], ["message"], ["message"]]


async def test_a_rule_fits_the_task_s_text_and_its_groups_fill_the_turns() -> None:
    rule = {"when": r"add (\d+)", "turns": [{"calls": [{"name": "add", "arguments": '{"n": {1}}'}]}]}
    scripted = model(rules=[rule], turns=[{"text": "?"}])
    assert (await ask(scripted, request("please add 42 to it"))).function_calls[0].arguments == '{"n": 42}'
    assert (await ask(scripted, request("hello"))).output_text == "?"


async def test_a_reply_follows_from_the_request_alone() -> None:
    config = {"turns": [{"text": "a"}], "faults": [{"kind": "cut", "rate": 0.5}]}
    asked = [request(str(number)) for number in range(40)]
    first = [(await ask(model(**config), each, "m_0")).to_json() for each in asked]
    second = [(await ask(model(**config), each, "m_7")).to_json() for each in asked]
    other = [(await ask(model(seed=1, **config), each)).to_json() for each in asked]
    assert first == second
    assert first != other


async def test_repeats_of_a_task_can_fare_differently() -> None:
    scripted = model(faults=[{"kind": "cut", "rate": 0.5}], vary="call")
    statuses = {(await ask(scripted, request("same"), f"m_{number}")).status for number in range(40)}
    assert statuses == {"completed", "incomplete"}


@pytest.mark.parametrize("kind", ["unavailable", "context_length"])
async def test_a_fault_can_be_an_error_of_its_kind(kind: str) -> None:
    with pytest.raises(ModelError) as raised:
        await ask(model(faults=[{"kind": kind, "rate": 1}]), request("x"))
    assert raised.value.kind == kind


async def test_a_hanging_call_is_never_answered() -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(ask(model(faults=[{"kind": "hang", "rate": 1}]), request("x")), 0.05)


async def test_a_transient_fault_waits_without_its_place_and_then_answers() -> None:
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    scripted = model(faults=[{"kind": "transient", "rate": 1, "retry_after_s": 7.0}])
    assert (await scripted.responses(request("x"), call(wait=wait))).output_text == "Done."
    assert waited == [7.0]


async def test_broken_calls_are_broken_json() -> None:
    scripted = model(turns=[{"calls": [{"name": "add"}]}], faults=[{"kind": "broken_call", "rate": 1}])
    (made,) = (await ask(scripted, request("x"))).function_calls
    with pytest.raises(json.JSONDecodeError):
        json.loads(made.arguments)


async def test_all_parts_of_a_turn_are_said_in_their_order() -> None:
    turn = {"reasoning": "hm", "text": "a", "refusal": "no", "calls": [{"name": "f"}, {"name": "g"}]}
    reply = await ask(model(turns=[turn]), request("x"))
    assert [item.type for item in reply.output] == ["reasoning", "message", "function_call", "function_call"]
    ids = [item.call_id for item in reply.output if isinstance(item, FunctionCall)]
    assert len(set(ids)) == 2


async def test_usage_is_counted_or_as_the_config_says() -> None:
    usage = (await ask(model(input_tokens=2000, output_tokens=500), request("x"))).usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (2000, 500, 2500)
    openai.types.responses.ResponseUsage.model_validate(usage.to_dict(), strict=True)
    usage = (await ask(model(turns=[{"text": "y" * 40}]), request("x" * 400))).usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (100, 10)


@pytest.mark.parametrize("distribution", ["uniform", "exponential", "lognormal"])
def test_a_latency_has_its_mean(distribution: str) -> None:
    latency = ScriptedModelConfig.model_validate({"latency": {"distribution": distribution, "mean_s": 2.0}}).latency
    chance = Random(1)
    drawn = [latency.draw(chance) for _ in range(20_000)]
    assert sum(drawn) / len(drawn) == pytest.approx(2.0, rel=0.05)
    assert min(drawn) >= 0


async def test_made_up_tokens_follow_from_the_task_and_go_on_from_turn_to_turn() -> None:
    """T1, T3, T8, T18."""
    scripted = model(tokens={"prompt": 20, "generated": 5}, turns=[{"calls": [{"name": "add"}]}, {"text": "5"}])
    asked, said = request("add"), []
    for _ in range(3):
        taken: list[EngineTokens] = []
        reply = await scripted.responses(asked, ModelCall(rollout_id="r", call_key="m_0", capture=taken.append))
        said.extend(taken)
        assert reply.usage is not None
        counted = len(unpack_ids(said[-1].prompt)), len(unpack_ids(said[-1].generated))
        assert (reply.usage.input_tokens, reply.usage.output_tokens) == counted
        assert "token_ids" not in json.dumps(reply.to_dict())
        asked = asked.model_copy(update={"input": [*asked.input, *reply.output]})
    assert [len(unpack_ids(tokens.generated)) for tokens in said] == [5, 5, 5]
    assert len(unpack_ids(said[0].prompt)) == 20
    for before, after in pairwise(said):
        assert after.prompt.startswith(before.prompt + before.generated)
    assert all(max(unpack_logprobs(tokens.logprobs)) <= 0 for tokens in said)
    assert scripted_tokens("add", 0, 20, 5) == said[0] != scripted_tokens("sub", 0, 20, 5)
    whole = unpack_ids(scripted_tokens("add", 0, 300_000, 1).prompt)
    assert len(whole) == 300_000
    assert whole[131_072] == whole[0], "longer than what is made once"
