"""Whatever the installed openai package's types can say is taken and given back as it was."""

import json
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import openai.types.chat as openai_chat
import openai.types.responses as openai_responses
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from openai.types.responses.response_input_item import ResponseInputItem
from pydantic import BaseModel, TypeAdapter

from contracts import chat
from contracts.base import ApiModel
from contracts.responses import Item, Response, ResponseCreateParams, Tool, UnknownItem, UnknownTool
from tests.unit.contracts.documents import canonical, documents

ITEM: TypeAdapter[ApiModel] = TypeAdapter(Item)
TOOL: TypeAdapter[ApiModel] = TypeAdapter(Tool)

quick = settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))


def name(member: Any) -> str:
    return f"{member.__module__.rpartition('.')[2]}.{member.__name__}"


def members(union: Any) -> list[Any]:
    while get_origin(union) is Annotated:
        union = get_args(union)[0]
    return [inner for member in get_args(union) for inner in (members(member) or [member])]


def types_of(member: Any) -> list[str]:
    hints = (
        {name: field.annotation for name, field in member.model_fields.items()}
        if issubclass(member, BaseModel)
        else get_type_hints(member)
    )
    found: list[str] = []
    queue = [hints["type"]]
    while queue:
        hint = queue.pop()
        if get_origin(hint) is Literal:
            found += get_args(hint)
        else:
            queue += get_args(hint)
    return found


ITEMS = {
    name(member): member
    for union in (
        openai_responses.ResponseInputItemParam,
        ResponseInputItem,
        openai_responses.ResponseOutputItem,
        openai_responses.ResponseItem,
    )
    for member in members(union)
}
TOOLS = {
    name(member): member for union in (openai_responses.Tool, openai_responses.ToolParam) for member in members(union)
}
WHOLE = [
    (openai_responses.Response, Response),
    (ResponseCreateParamsNonStreaming, ResponseCreateParams),
    (openai_chat.ChatCompletion, chat.ChatCompletion),
    (CompletionCreateParamsNonStreaming, chat.ChatCompletionParams),
]


def forms(member: Any, document: dict[str, Any]) -> list[dict[str, Any]]:
    """What the package sends for `document`: as given, and written out by its class with all fields or the set ones."""
    if not issubclass(member, BaseModel):
        return [document]
    built = member.model_validate(document)
    return [built.model_dump(mode="json", by_alias=True, exclude_unset=unset) for unset in (True, False)]


@pytest.mark.parametrize("kind", sorted({kind for member in ITEMS.values() for kind in types_of(member)}))
def test_item_type_is_modelled(kind: str) -> None:
    """None of the package's item types ends as an `UnknownItem`."""
    assert kind in {name for model in members(Item) for name in types_of(model)}


@pytest.mark.parametrize("kind", sorted({kind for member in TOOLS.values() for kind in types_of(member)}))
def test_tool_type_is_modelled(kind: str) -> None:
    """None of the package's tool types ends as an `UnknownTool`."""
    assert kind in {name for model in members(Tool) for name in types_of(model)}


@pytest.mark.parametrize("member", ITEMS.values(), ids=ITEMS)
@quick
@given(data=st.data())
def test_item_round_trips(member: Any, data: st.DataObject) -> None:
    for form in forms(member, data.draw(documents(member))):
        item = ITEM.validate_json(json.dumps(form))
        assert not isinstance(item, UnknownItem)
        assert canonical(json.loads(item.to_json())) == canonical(form)


@pytest.mark.parametrize("member", TOOLS.values(), ids=TOOLS)
@quick
@given(data=st.data())
def test_tool_round_trips(member: Any, data: st.DataObject) -> None:
    for form in forms(member, data.draw(documents(member))):
        tool = TOOL.validate_json(json.dumps(form))
        assert not isinstance(tool, UnknownTool)
        assert canonical(json.loads(tool.to_json())) == canonical(form)


@pytest.mark.parametrize(("theirs", "ours"), WHOLE, ids=[f"{theirs.__name__}" for theirs, _ in WHOLE])
@quick
@given(data=st.data())
def test_document_round_trips(theirs: Any, ours: type[ApiModel], data: st.DataObject) -> None:
    document = data.draw(documents(theirs))
    if ours is ResponseCreateParams:
        document.setdefault("input", [])  # the one thing that the package lets out and we do not
    for form in forms(theirs, document):
        assert canonical(json.loads(ours.model_validate_json(json.dumps(form)).to_json())) == canonical(form)
