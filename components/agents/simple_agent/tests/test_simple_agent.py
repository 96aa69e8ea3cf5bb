"""What the tool loop does with what a model says."""

import json

import msgspec
import openai.types.responses
import pytest

from components.agents.simple_agent.app import SimpleAgent, SimpleAgentConfig
from components.agents.trial import run_agent
from components.durable import Call, CallFailed
from contracts.events import CallError
from contracts.responses import (
    FunctionCall,
    FunctionCallOutput,
    Item,
    Response,
    ResponseUsage,
    function_call,
    output_message,
    reasoning,
)
from contracts.rollouts import RolloutResult, ToolCall, ToolOutput, Verdict

CONFIG = SimpleAgentConfig(model="policy", resources="tools")
TASK = json.dumps({"responses_create_params": {"input": "add 2 and 3"}, "expected": 5}).encode()


def response(*output: Item, incomplete: str | None = None) -> Response:
    fields: dict[str, object] = {}
    if incomplete:
        fields = {"status": "incomplete", "incomplete_details": {"reason": incomplete}}
    return Response.model_validate(
        {
            "id": "resp",
            "object": "response",
            "created_at": 0,
            "model": "scripted",
            "output": [item.to_dict() for item in output],
            "usage": {
                "input_tokens": 10,
                "output_tokens": 5,
                "total_tokens": 15,
                "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": 1},
            },
            **fields,
        }
    )


class Outside:
    """Answers an agent's calls from a script and remembers them."""

    def __init__(self, *replies: Response | CallError) -> None:
        self.replies = list(replies)
        self.requests: list[dict[str, object]] = []
        self.tools: list[ToolCall] = []
        self.keys: list[str] = []

    def __call__(self, call: Call) -> Response | CallError | ToolOutput | Verdict | None:
        self.keys.append(call.key)
        match call.type:
            case "model.requested":
                self.requests.append(json.loads(call.data))
                return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
            case "tool.requested":
                self.tools.append(msgspec.json.decode(call.data, type=ToolCall))
                return ToolOutput(output=msgspec.Raw(b'"5"'))
            case "verify.requested":
                return Verdict(reward=1.0, extra={"note": msgspec.Raw(b'"well done"')})
            case _:
                return None


def run(outside: Outside, config: SimpleAgentConfig = CONFIG) -> RolloutResult:
    return run_agent(SimpleAgent, config, TASK, outside)


def output(result: RolloutResult) -> Response:
    return Response.model_validate_json(bytes(result.response))


CALL = function_call("c1", "add", '{"a": 2, "b": 3}')
ANSWER = output_message("5", item_id="msg")


def test_a_reply_without_a_call_ends_the_rollout_with_the_verifier_s_reward() -> None:
    result = run(Outside(response(ANSWER)))
    assert result.reward == 1.0
    assert msgspec.json.decode(result.extra["note"]) == "well done"
    assert output(result).output_text == "5"


def test_tool_outputs_follow_the_calls_and_the_next_request_holds_all_of_it() -> None:
    outside = Outside(response(CALL), response(ANSWER))
    result = run(outside)
    assert [item.type for item in output(result).output] == ["function_call", "function_call_output", "message"]
    second = outside.requests[1]["input"]
    assert isinstance(second, list)
    assert [item.get("role") or item["type"] for item in second] == ["user", "function_call", "function_call_output"]


def test_a_response_without_tool_outputs_is_one_that_the_openai_package_reads() -> None:
    tool = {
        "type": "function",
        "name": "add",
        "description": "Adds.",
        "parameters": {"type": "object"},
        "strict": False,
    }
    task = json.dumps(
        {"responses_create_params": {"input": "add", "tools": [tool], "tool_choice": "required"}}
    ).encode()
    result = run_agent(SimpleAgent, CONFIG, task, Outside(response(ANSWER)))
    read = openai.types.responses.Response.model_validate_json(bytes(result.response))
    assert read.tools[0].type == "function"
    assert read.tool_choice == "required"
    assert read.parallel_tool_calls is True


def test_usage_is_the_sum_over_the_turns() -> None:
    assert output(run(Outside(response(CALL), response(ANSWER)))).usage == ResponseUsage.model_validate(
        {
            "input_tokens": 20,
            "output_tokens": 10,
            "total_tokens": 30,
            "input_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 2},
        }
    )


def test_the_calls_of_one_turn_are_made_in_parallel_and_answered_in_their_order() -> None:
    calls: list[FunctionCall] = [function_call(f"c{n}", "add", "{}") for n in range(3)]
    outside = Outside(response(*calls), response(ANSWER))
    result = run(outside)
    assert len({key.rpartition("_")[0] for key in outside.keys if key.startswith("m") and key[1] != "_"}) == 3
    outputs = [item for item in output(result).output if isinstance(item, FunctionCallOutput)]
    assert [item.call_id for item in outputs] == ["c0", "c1", "c2"]


def test_an_incomplete_reply_ends_the_loop_though_it_calls() -> None:
    outside = Outside(response(CALL, incomplete="max_output_tokens"))
    result = output(run(outside))
    assert outside.tools == []
    assert result.incomplete_details is not None
    assert result.incomplete_details.reason == "max_output_tokens"


@pytest.mark.parametrize(
    ("config", "replies", "reason", "turns"),
    [
        ({"max_turns": 4, "max_repeats": 10}, [CALL], "max_turns", 4),
        ({"max_reasoning_turns": 3}, [reasoning("hm", item_id="rs")], "only_reasoning", 3),
        ({"max_repeats": 2}, [CALL], "repeated", 2),
    ],
)
def test_a_model_that_never_ends_is_ended_and_the_response_says_why(
    config: dict[str, int], replies: list[Item], reason: str, turns: int
) -> None:
    outside = Outside(response(*replies))
    result = output(run(outside, SimpleAgentConfig(model="policy", resources="tools", **config)))
    assert len(outside.requests) == turns
    assert result.status == "incomplete"
    assert result.incomplete_details is not None
    assert result.incomplete_details.reason == reason


def test_thinking_once_does_not_end_the_rollout() -> None:
    result = run(Outside(response(reasoning("hm", item_id="rs")), response(ANSWER)))
    assert output(result).status is None
    assert output(result).output_text == "5"


def test_a_model_that_cannot_answer_fails_the_rollout_with_its_typed_error() -> None:
    with pytest.raises(CallFailed) as raised:
        run(Outside(CallError(kind="context_length", message="too long")))
    assert raised.value.error.kind == "context_length"
