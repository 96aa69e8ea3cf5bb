"""A refused document is reported by the places that are wrong, without the unions that were tried."""

import json
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from contracts import chat
from contracts.problems import problems
from contracts.responses import ResponseCreateParams

STRING = "Input should be a valid string"
MISSING = "Field required"


def found(model: type[BaseModel], document: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(ValidationError) as caught:
        model.model_validate_json(json.dumps(document))
    places = problems(caught.value, document)
    assert len(places) == len(dict(places))
    return dict(places)


@pytest.mark.parametrize(
    ("document", "places"),
    [
        ({}, {"input": MISSING}),
        ({"input": 3}, {"input": f"{STRING}, or: Input should be a valid array"}),
        ({"input": [{"text": "hi"}]}, {"input.0": "Input should be an object with a `type` or `role`"}),
        (
            {"input": [{"role": "wizard", "content": "hi"}]},
            {"input.0.role": "Input should be 'user', 'system', 'developer' or 'assistant'"},
        ),
        ({"input": [{"role": "user", "content": "x"}, {"role": "user"}]}, {"input.1.content": MISSING}),
        (
            {"input": [{"role": "user", "content": [{"type": "input_text", "text": 3}]}]},
            {"input.0.content.0.text": STRING},
        ),
        (
            {"input": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": 3}]}]},
            {"input.0.content.0.text": STRING},
        ),
        (
            {"input": [{"type": "function_call", "call_id": "c", "name": 3}]},
            {"input.0.name": STRING, "input.0.arguments": MISSING},
        ),
        (
            {"input": "x", "tools": [{"type": "function", "name": "f", "parameters": []}]},
            {"tools.0.parameters": "Input should be an object"},
        ),
        (
            {"input": "x", "temperature": "hot"},
            {"temperature": "Input should be a valid integer, or: Input should be a valid number"},
        ),
    ],
)
def test_request_s_problems(document: dict[str, Any], places: dict[str, str]) -> None:
    assert found(ResponseCreateParams, document) == places


def test_place_named_like_its_variant() -> None:
    """A tag of a union is not taken for the field of that name."""
    call = {"type": "function", "id": 3, "function": {"name": "f", "arguments": 4}}
    document = {"messages": [{"role": "assistant", "tool_calls": [call]}]}
    assert found(chat.ChatCompletionParams, document) == {
        "messages.0.tool_calls.0.id": STRING,
        "messages.0.tool_calls.0.function.arguments": STRING,
    }
