"""Which model an item, part, tool or choice becomes, and the small conveniences of requests and responses."""

import json
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from contracts.base import ApiModel
from contracts.responses import (
    AllowedToolsChoice,
    ContentPart,
    CustomChoice,
    FunctionCallOutput,
    FunctionChoice,
    HostedToolChoice,
    InputMessage,
    InputText,
    Item,
    ItemReference,
    JsonSchemaFormat,
    McpChoice,
    OutputMessage,
    OutputText,
    ReasoningItem,
    Refusal,
    Response,
    ResponseCreateParams,
    TextConfig,
    Tool,
    ToolChoice,
    UnknownItem,
    UnknownPart,
    UnknownTool,
    developer_message,
    function_call,
    function_call_output,
    output_message,
    reasoning,
    system_message,
    user_message,
)

TEXT = {"type": "output_text", "text": "hello", "annotations": []}
MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [TEXT]}
REPLY = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1700000000,
    "model": "m",
    "output": [MESSAGE],
    "usage": {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4},
}


def parse(annotation: Any, document: object) -> Any:
    """`document` parsed, after a check that it is written again as it was."""
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    parsed = adapter.validate_json(json.dumps(document))
    assert json.loads(adapter.dump_json(parsed, exclude_unset=True)) == document
    assert adapter.validate_python(document) == parsed
    return parsed


@pytest.mark.parametrize(
    ("document", "model"),
    [
        ({"role": "user", "content": "hi"}, InputMessage),
        ({"role": "developer", "content": [{"type": "input_text", "text": "hi"}]}, InputMessage),
        ({"role": "assistant", "content": "hi"}, InputMessage),
        ({"role": "assistant", "content": [TEXT]}, InputMessage),
        ({"type": None, "role": "user", "content": "hi"}, InputMessage),
        ({"type": "message", "role": "user", "content": "hi"}, InputMessage),
        ({"type": "message", "role": "system", "content": [], "status": "completed"}, InputMessage),
        ({"type": "message", "role": "assistant", "content": "hi"}, InputMessage),
        ({"type": "message", "role": "assistant", "content": [TEXT]}, OutputMessage),
        (MESSAGE, OutputMessage),
        ({**MESSAGE, "content": [{"type": "refusal", "refusal": "no"}]}, OutputMessage),
        ({**MESSAGE, "content": []}, OutputMessage),
        ({"id": "msg_1"}, ItemReference),
        ({"id": "msg_1", "type": None}, ItemReference),
        ({"id": "msg_1", "type": "item_reference"}, ItemReference),
        ({"type": "dream", "id": "d_1", "scene": [1, {"x": None}]}, UnknownItem),
        ({"type": "user", "content": 3}, UnknownItem),
        ({"type": "unknown"}, UnknownItem),
    ],
)
def test_item_becomes_the_model_of_its_kind(document: dict[str, Any], model: type[ApiModel]) -> None:
    assert type(parse(Item, document)) is model


@pytest.mark.parametrize(
    ("annotation", "document", "model"),
    [
        (ContentPart, {"type": "input_video", "video_url": "x"}, UnknownPart),
        (Tool, {"type": "time_machine", "years": [1985]}, UnknownTool),
        (ToolChoice, {"type": "function", "name": "f"}, FunctionChoice),
        (ToolChoice, {"type": "custom", "name": "f"}, CustomChoice),
        (ToolChoice, {"type": "mcp", "server_label": "s"}, McpChoice),
        (ToolChoice, {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp"}]}, AllowedToolsChoice),
        (ToolChoice, {"type": "shell"}, HostedToolChoice),
        (ToolChoice, {"type": "time_machine", "to": 1985}, HostedToolChoice),
        (ToolChoice, "required", str),
    ],
)
def test_variant_becomes_the_model_of_its_kind(annotation: Any, document: object, model: type[object]) -> None:
    assert type(parse(annotation, document)) is model


def test_extra_fields_of_an_item_can_be_read() -> None:
    item = parse(Item, {**MESSAGE, "prompt_token_ids": [1, 2], "generation_log_probs": [-0.5, -1e-9]})
    assert item.prompt_token_ids == [1, 2]


def test_schema_of_a_format_goes_by_its_wire_name() -> None:
    document = {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}, "verbosity": "low"}
    config: TextConfig = parse(TextConfig, document)
    assert isinstance(config.format, JsonSchemaFormat)
    assert config.format.schema_ == {"type": "object"}


@pytest.mark.parametrize(
    "document",
    [
        {"input": "x", "temperature": "1"},
        {"input": "x", "temperature": True},
        {"input": "x", "max_output_tokens": 10.5},
        {"input": "x", "parallel_tool_calls": 1},
        {"input": "x", "model": 4},
        {"input": "x", "tool_choice": "always"},
        {"input": {"role": "user", "content": "x"}},
        {"input": [{"role": "wizard", "content": "x"}]},
        {"input": [{"content": "x"}]},
        {"input": [{"type": "function_call", "name": "f"}]},
        {"input": [{"type": ["message"]}]},
        {"input": [None]},
        {"input": "x", "tools": [{"name": "f"}]},
        {},
    ],
)
def test_wrong_type_is_refused_not_converted(document: object) -> None:
    with pytest.raises(ValidationError):
        ResponseCreateParams.model_validate_json(json.dumps(document))


def test_no_number_is_refused() -> None:
    with pytest.raises(ValidationError):
        ResponseCreateParams.model_validate_json('{"input": "x", "temperature": NaN}')


def test_output_goes_into_the_next_request_as_it_is() -> None:
    reply = Response.model_validate(
        {**REPLY, "output": [{"type": "reasoning", "summary": [], "x": 1}, {**MESSAGE, "prompt_token_ids": [1]}]}
    )
    request = ResponseCreateParams(input=[user_message("hi"), *reply.output])
    assert all(sent is item for sent, item in zip(request.input[1:], reply.output, strict=True))
    assert json.loads(request.to_json())["input"][1:] == reply.to_dict()["output"]


def test_output_text_joins_what_the_model_wrote() -> None:
    call = function_call("call_1", "f", "{}")
    output: list[Item] = [output_message("a", item_id="m1"), call, user_message("b"), output_message("c", item_id="m2")]
    reply = Response(id="r", object="response", created_at=1, model="m", output=output)
    assert reply.output_text == "ac"
    assert reply.function_calls == [call]
    assert Response.model_validate(REPLY).output_text == "hello"


def test_text_of_a_message_joins_its_texts() -> None:
    assert user_message("hi").text == "hi"
    parts: list[ContentPart] = [
        InputText(type="input_text", text="a"),
        Refusal(type="refusal", refusal="no"),
        UnknownPart.model_validate({"type": "input_video", "text": "not a text"}),
        OutputText(type="output_text", text="b"),
    ]
    assert InputMessage(role="assistant", content=parts).text == "ab"
    assert OutputMessage(type="message", role="assistant", content=parts).text == "ab"


def test_text_of_reasoning_is_the_reasoning_else_its_summary() -> None:
    shown = {"type": "reasoning_text", "text": "long"}
    summary = [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]
    assert reasoning("short", item_id="rs_1").text == "short"
    assert ReasoningItem.model_validate({"type": "reasoning", "summary": summary}).text == "a\n\nb"
    assert ReasoningItem.model_validate({"type": "reasoning", "summary": summary, "content": [shown]}).text == "long"


@pytest.mark.parametrize(
    ("made", "document"),
    [
        (user_message("hi"), {"type": "message", "role": "user", "content": "hi"}),
        (system_message("hi"), {"type": "message", "role": "system", "content": "hi"}),
        (developer_message("hi"), {"type": "message", "role": "developer", "content": "hi"}),
        (output_message("hello", item_id="msg_1"), MESSAGE),
        (
            function_call("c", "f", "{}"),
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        ),
        (function_call_output("c", "5"), {"type": "function_call_output", "call_id": "c", "output": "5"}),
        (
            reasoning("hm", item_id="rs_1"),
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
        ),
    ],
)
def test_what_is_made_is_written_whole(made: ApiModel, document: dict[str, Any]) -> None:
    """The type is written too, although it goes without saying in Python."""
    assert made.to_dict() == document
    assert parse(Item, document) == made


def test_a_message_of_a_user_may_stand_in_the_output_of_a_response_that_others_read() -> None:
    response = Response(id="r", object="response", created_at=0, model="m", output=[user_message("go on")])
    assert response.to_dict()["output"] == [{"type": "message", "role": "user", "content": "go on"}]


def test_changed_copy_is_written_changed() -> None:
    request = ResponseCreateParams(input="hi").model_copy(update={"input": [user_message("ho")], "temperature": 1})
    assert json.loads(request.to_json()) == {
        "input": [{"type": "message", "role": "user", "content": "ho"}],
        "temperature": 1,
    }


def test_item_of_an_author_s_own_class_keeps_its_fields() -> None:
    class Noted(FunctionCallOutput):
        note: str

    item = Noted(type="function_call_output", call_id="c", output="5", note="mine")
    request = ResponseCreateParams(input=[item])
    assert request.to_dict()["input"][0]["note"] == "mine"
