"""Function calls by constrained decoding: what is asked, and how the reply is read."""

import json
from typing import Any

import jsonschema
import pytest

from components.models.errors import ModelError
from components.models.local_llm.functions import offered, read
from contracts.responses import JsonSchemaFormat, Response, ResponseCreateParams

ADD = {
    "type": "function",
    "name": "add",
    "description": "Adds to the counter.",
    "parameters": {
        "type": "object",
        "properties": {"count": {"type": "integer"}},
        "required": ["count"],
        "additionalProperties": False,
    },
}
READ = {"type": "function", "name": "read", "parameters": None}


def offer(**fields: Any) -> ResponseCreateParams:
    made = offered(ResponseCreateParams.model_validate({"input": "Add 3.", "tools": [ADD, READ], **fields}))
    assert made is not None
    return made


def allows(request: ResponseCreateParams, reply: object) -> bool:
    assert request.text is not None
    assert isinstance(request.text.format, JsonSchemaFormat)
    return jsonschema.Draft202012Validator(request.text.format.schema_).is_valid(reply)


def said(request: ResponseCreateParams) -> list[tuple[str, Any]]:
    assert isinstance(request.input, list)
    return [(item.to_dict()["role"], item.to_dict()["content"]) for item in request.input]


def reply(text: str, **fields: Any) -> Response:
    message = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text}],
    }
    return Response.model_validate(
        {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "output": [message], **fields}
    )


CALL_ADD = {"function": "add", "arguments": {"count": 3}}
CALL_READ: dict[str, Any] = {"function": "read", "arguments": {}}
ANSWER = {"answer": "It is 3."}


def test_a_reply_is_constrained_to_one_valid_call_or_an_answer() -> None:
    request = offer()
    for good in (CALL_ADD, CALL_READ, ANSWER):
        assert allows(request, good)
    for bad in (
        {"function": "add", "arguments": {}},
        {"function": "sub", "arguments": {}},
        {**ANSWER, **CALL_ADD},
        "x",
    ):
        assert not allows(request, bad)


def test_the_functions_stand_in_the_instructions_and_no_longer_in_the_tools() -> None:
    request = offer(instructions="Be kind.", tool_choice="auto", parallel_tool_calls=True)
    assert request.instructions is not None
    assert request.instructions.startswith("Be kind.\n\nFunctions:\n")
    assert '"name": "add", "description": "Adds to the counter."' in request.instructions
    assert (request.tools, request.tool_choice, request.parallel_tool_calls) == (None, None, None)
    assert said(request) == [("user", "Add 3.")]


@pytest.mark.parametrize(
    ("choice", "allowed", "forbidden"),
    [
        ("auto", [CALL_ADD, CALL_READ, ANSWER], []),
        ("required", [CALL_ADD, CALL_READ], [ANSWER]),
        ({"type": "function", "name": "read"}, [CALL_READ], [CALL_ADD, ANSWER]),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "add"}]},
            [CALL_ADD, ANSWER],
            [CALL_READ],
        ),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "add"}]},
            [CALL_ADD],
            [CALL_READ, ANSWER],
        ),
    ],
)
def test_every_choice_of_tools_is_kept_to(choice: Any, allowed: list[object], forbidden: list[object]) -> None:
    request = offer(tool_choice=choice)
    assert all(allows(request, one) for one in allowed)
    assert not any(allows(request, one) for one in forbidden)


def test_a_request_without_tools_or_with_the_choice_none_is_left_alone() -> None:
    assert offered(ResponseCreateParams.model_validate({"input": "hi"})) is None
    assert offered(ResponseCreateParams.model_validate({"input": "hi", "tools": [ADD], "tool_choice": "none"})) is None


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"tools": [{"type": "web_search"}]}, "web_search"),
        ({"tool_choice": {"type": "function", "name": "sub"}}, "names sub"),
        ({"tool_choice": {"type": "file_search"}}, "file_search"),
    ],
)
def test_what_is_no_function_of_the_request_is_refused_by_name(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ModelError, match=why) as raised:
        offer(**fields)
    assert raised.value.kind == "bad_request"


def test_earlier_calls_results_and_answers_are_told_as_the_model_wrote_and_read_them() -> None:
    request = offer(
        input=[
            {"role": "user", "content": "Add 3."},
            {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"count": 3}'},
            {"type": "function_call_output", "call_id": "c1", "output": "done"},
            {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
            {"role": "user", "content": "Thanks."},
        ]
    )
    reminder = '\nIf nothing is left to do, reply {"answer": text}.'
    assert said(request) == [
        ("user", "Add 3."),
        ("assistant", json.dumps(CALL_ADD)),
        ("user", "Result of add: done" + reminder),
        ("assistant", '{"answer": "Done."}'),
        ("user", "Thanks."),
    ]


def test_a_result_in_parts_keeps_its_parts() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    request = offer(
        tool_choice="required",
        input=[
            {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "broken"},
            {"type": "function_call_output", "call_id": "c1", "output": [image]},
        ],
    )
    assert said(request) == [
        ("assistant", '{"function": "read", "arguments": "broken"}'),
        ("user", [{"type": "input_text", "text": "Result of read: "}, image]),
    ]


def test_an_answer_keeps_to_the_format_that_the_request_asks_for() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    request = offer(text={"format": {"type": "json_schema", "name": "n", "schema": schema}})
    assert allows(request, {"answer": {"n": 3}})
    assert not allows(request, ANSWER)
    assert read(reply('{"answer": {"n": 3}}')).output_text == '{"n": 3}'
    assert allows(offer(text={"format": {"type": "json_object"}}), {"answer": {}})


def test_a_call_becomes_a_function_call_and_an_answer_a_message() -> None:
    (call,) = read(reply('{ "function": "add",\n "arguments": {"count": 3} }')).function_calls
    assert (call.name, call.arguments, call.call_id) == ("add", '{"count": 3}', "call_1")
    answered = read(reply('{"answer": "It is 3."}'))
    assert answered.output_text == "It is 3."
    assert answered.function_calls == []


def test_json_that_was_cut_off_stays_as_the_model_wrote_it() -> None:
    cut = reply('{"function": "add", "argu', status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    assert read(cut) == cut
