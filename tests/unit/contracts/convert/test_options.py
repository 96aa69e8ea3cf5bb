"""How the options of a request, its tools and what must be called of them are said in the other API."""

from typing import Any

import pytest
from pydantic import ValidationError

from contracts import chat
from contracts.base import JsonObject
from contracts.convert import ChatStyle, request_from_chat, request_to_chat
from contracts.errors import NoChatForm, NoResponsesForm
from contracts.responses import ResponseCreateParams

FUNCTION = {"type": "function", "name": "add"}
TOOLS = [{**FUNCTION, "parameters": {"type": "object"}}]
CHAT_TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def to_chat(options: JsonObject, **style: Any) -> JsonObject:
    request = ResponseCreateParams.model_validate({"input": "hi", **options})
    body = request_to_chat(request, ChatStyle(**style)).to_dict()
    assert body.pop("messages") == [{"role": "user", "content": "hi"}]
    return body


def from_chat(options: JsonObject) -> JsonObject:
    message = {"role": "user", "content": "hi"}
    body = request_from_chat(chat.ChatCompletionParams.model_validate({"messages": [message], **options})).to_dict()
    assert body.pop("input") == [message]
    return body


SAME: JsonObject = {
    "model": "m",
    "temperature": 0,
    "top_p": 0.9,
    "metadata": {"a": "b"},
    "store": False,
    "stream": False,
    "service_tier": "flex",
    "prompt_cache_key": "k",
    "prompt_cache_retention": "24h",
    "safety_identifier": "s",
    "user": "u",
    "seed": 7,
    "stop": ["\n"],
    "frequency_penalty": 0.5,
    "logit_bias": {"5": -100},
    "top_k": 20,
    "min_p": None,
    "chat_template_kwargs": {"enable_thinking": False},
}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (SAME, SAME),
        ({"max_output_tokens": 5}, {"max_completion_tokens": 5}),
        ({"reasoning": {"effort": "high"}}, {"reasoning_effort": "high"}),
        ({"text": {"verbosity": "low"}}, {"verbosity": "low"}),
        ({"text": {"format": {"type": "text"}}}, {"response_format": {"type": "text"}}),
        ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
        (
            {"text": {"format": {"type": "structural_tag", "structures": []}}},
            {"response_format": {"type": "structural_tag", "structures": []}},
        ),
        (
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}},
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
        ),
        (
            {
                "text": {
                    "format": {
                        "type": "json_schema",
                        "name": "n",
                        "schema": SCHEMA,
                        "strict": True,
                        "description": "d",
                    },
                    "verbosity": "high",
                }
            },
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "schema": SCHEMA, "strict": True, "description": "d"},
                },
                "verbosity": "high",
            },
        ),
        (
            {"include": ["message.output_text.logprobs"], "top_logprobs": 3},
            {"logprobs": True, "top_logprobs": 3},
        ),
        ({"include": ["message.output_text.logprobs"]}, {"logprobs": True}),
        ({"tools": TOOLS}, {"tools": CHAT_TOOLS}),
        (
            {"tools": TOOLS, "parallel_tool_calls": False, "tool_choice": "auto"},
            {"tools": CHAT_TOOLS, "parallel_tool_calls": False, "tool_choice": "auto"},
        ),
        ({"tools": TOOLS, "tool_choice": "none"}, {"tools": CHAT_TOOLS, "tool_choice": "none"}),
        ({"tools": TOOLS, "tool_choice": "required"}, {"tools": CHAT_TOOLS, "tool_choice": "required"}),
        (
            {"tools": TOOLS, "tool_choice": FUNCTION},
            {"tools": CHAT_TOOLS, "tool_choice": {"type": "function", "function": {"name": "add"}}},
        ),
        (
            {"tools": TOOLS, "tool_choice": {"type": "custom", "name": "sh"}},
            {"tools": CHAT_TOOLS, "tool_choice": {"type": "custom", "custom": {"name": "sh"}}},
        ),
        (
            {"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [FUNCTION]}},
            {
                "tools": CHAT_TOOLS,
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {
                        "mode": "required",
                        "tools": [{"type": "function", "function": {"name": "add"}}],
                    },
                },
            },
        ),
        (
            {"tools": [{**FUNCTION, "description": "d", "parameters": SCHEMA, "strict": True, "x": 1}]},
            {
                "tools": [
                    {
                        "type": "function",
                        "function": {"name": "add", "description": "d", "parameters": SCHEMA, "strict": True, "x": 1},
                    }
                ]
            },
        ),
        (
            {
                "tools": [
                    {"type": "custom", "name": "sh", "description": "d", "format": {"type": "text"}},
                    {
                        "type": "custom",
                        "name": "sql",
                        "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"},
                    },
                ]
            },
            {
                "tools": [
                    {"type": "custom", "custom": {"name": "sh", "description": "d", "format": {"type": "text"}}},
                    {
                        "type": "custom",
                        "custom": {
                            "name": "sql",
                            "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: x"}},
                        },
                    },
                ]
            },
        ),
    ],
    ids="+".join,
)
def test_options_have_their_form_both_ways(options: JsonObject, said: JsonObject) -> None:
    assert to_chat(options) == said
    assert from_chat(said) == options


def test_the_limit_goes_by_the_name_that_the_engine_knows_and_is_read_by_both() -> None:
    assert to_chat({"max_output_tokens": 5}, max_tokens_field="max_tokens") == {"max_tokens": 5}
    assert from_chat({"max_tokens": 5}) == {"max_output_tokens": 5}
    assert from_chat({"max_tokens": 5, "max_completion_tokens": 5}) == {"max_output_tokens": 5}
    with pytest.raises(NoResponsesForm, match="differ"):
        from_chat({"max_tokens": 5, "max_completion_tokens": 6})


def test_asking_for_top_logprobs_asks_for_logprobs() -> None:
    assert to_chat({"top_logprobs": 2}) == {"logprobs": True, "top_logprobs": 2}
    assert to_chat({"top_logprobs": 0}) == {}


def test_without_tools_nothing_is_said_of_them() -> None:
    assert to_chat({"tools": [], "tool_choice": "auto", "parallel_tool_calls": True}) == {}
    assert to_chat({"tool_choice": "none"}) == {}
    for choice in ("required", FUNCTION):
        with pytest.raises(NoChatForm, match="no tools to call") as refused:
            to_chat({"tools": [], "tool_choice": choice})
        assert refused.value.name == "tool_choice"


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "web_search"},
        {"type": "mcp", "server_label": "s"},
        {"type": "code_interpreter", "container": "c"},
        {"type": "namespace", "name": "n", "tools": []},
        {"type": "from_the_future"},
    ],
    ids=lambda tool: tool["type"],
)
def test_a_hosted_tool_is_refused_by_name_or_left_out_if_allowed(tool: JsonObject) -> None:
    with pytest.raises(NoChatForm, match=rf"{tool['type']} has no form.*drop: \[{tool['type']}\]") as refused:
        to_chat({"tools": [*TOOLS, tool]})
    assert refused.value.name == tool["type"]
    assert to_chat({"tools": [*TOOLS, tool]}, drop=(tool["type"],)) == {"tools": CHAT_TOOLS}


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "web_search_preview"},
        {"type": "mcp", "server_label": "s"},
        {"type": "shell"},
    ],
    ids=lambda choice: choice["type"],
)
def test_a_choice_of_a_hosted_tool_is_refused_by_name(choice: JsonObject) -> None:
    for asked in (choice, {"type": "allowed_tools", "mode": "auto", "tools": [FUNCTION, choice]}):
        with pytest.raises(NoChatForm, match=choice["type"]) as refused:
            to_chat({"tools": TOOLS, "tool_choice": asked})
        assert refused.value.name == choice["type"]


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"truncation": "auto"}, "truncation"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"background": True}, "background"),
        ({"max_tool_calls": 3}, "max_tool_calls"),
        ({"context_management": [{"type": "compaction"}]}, "context_management"),
        ({"include": ["reasoning.encrypted_content"]}, "include"),
        ({"reasoning": {"summary": "auto"}}, "reasoning.summary"),
        ({"reasoning": {"generate_summary": "auto"}}, "reasoning.generate_summary"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_option_without_a_chat_form_is_refused_by_name_or_left_out_if_allowed(
    options: JsonObject, name: str
) -> None:
    with pytest.raises(NoChatForm, match=name) as refused:
        to_chat(options)
    assert refused.value.name == name
    assert f"drop: [{name}]" in str(refused.value)
    assert to_chat(options, drop=(name,)) == {}


def test_options_that_ask_for_nothing_are_not_sent() -> None:
    nothing = {
        "truncation": "disabled", "background": False, "include": [], "context_management": [], "max_tool_calls": None,
        "previous_response_id": None, "temperature": None, "reasoning": {}, "text": {}, "tools": None,
    }  # fmt: skip
    assert to_chat(nothing) == {}


def test_what_is_included_is_kept_where_the_rest_may_be_left_out() -> None:
    include = ["message.output_text.logprobs", "reasoning.encrypted_content"]
    assert to_chat({"include": include}, drop=("include",)) == {"logprobs": True}


@pytest.mark.parametrize("choices", [{"n": 2}, {"n": 0}])
def test_more_than_one_answer_is_refused(choices: JsonObject) -> None:
    with pytest.raises(NoChatForm, match="one answer"):
        to_chat(choices)
    with pytest.raises(NoResponsesForm, match="one answer"):
        from_chat(choices)


@pytest.mark.parametrize(
    "old", [{"functions": [{"name": "f"}]}, {"function_call": "auto"}], ids=lambda options: next(iter(options))
)
def test_the_forms_before_tools_are_refused_by_name(old: JsonObject) -> None:
    with pytest.raises(NoResponsesForm, match="tools"):
        from_chat(old)


def test_an_option_said_twice_with_two_values_is_refused() -> None:
    assert to_chat({"max_output_tokens": 5, "max_completion_tokens": 5}) == {"max_completion_tokens": 5}
    with pytest.raises(NoChatForm, match="max_completion_tokens is said twice"):
        to_chat({"max_output_tokens": 5, "max_completion_tokens": 6})
    with pytest.raises(NoChatForm, match="response_format is said twice"):
        to_chat({"text": {"format": {"type": "json_object"}}, "response_format": {"type": "text"}})


def test_a_field_that_passes_as_it_is_must_be_what_the_other_api_takes_there() -> None:
    with pytest.raises(NoChatForm, match=r"seed cannot be passed on: .*integer") as refused:
        to_chat({"seed": "seven"})
    assert refused.value.name == "seed"


def test_further_fields_of_nested_options_pass_and_come_back() -> None:
    options = {"text": {"verbosity": "low", "x": 1}, "reasoning": {"effort": "low", "max_tokens": 100}}
    said = {"verbosity": "low", "text": {"x": 1}, "reasoning_effort": "low", "reasoning": {"max_tokens": 100}}
    assert to_chat(options) == said
    assert from_chat(said) == options


def test_a_style_refuses_what_it_does_not_know() -> None:
    with pytest.raises(ValidationError, match="reasonign_style"):
        ChatStyle.model_validate({"reasonign_style": "omit"})
