"""How does a model whose template knows no tools call functions? By decoding that lets it write nothing else.

The functions are described in the instructions, and the engine constrains the reply to one JSON object: a call, or an
answer. `offered` rewrites the request so, `read` the reply back. Used by `local_llm`; pure.
"""

import json
from typing import Final

from components.models.errors import ModelError
from contracts.base import JsonObject
from contracts.responses import (
    AllowedToolsChoice,
    FunctionCall,
    FunctionCallOutput,
    FunctionChoice,
    FunctionTool,
    InputMessage,
    Item,
    JsonObjectFormat,
    JsonSchemaFormat,
    OutputMessage,
    Response,
    ResponseCreateParams,
    TextConfig,
    input_text,
    output_message,
    user_message,
)

_FUNCTION, _ARGUMENTS, _ANSWER = "function", "arguments", "answer"
_CALLS: Final = f'{{"{_FUNCTION}": name, "{_ARGUMENTS}": {{...}}}} calls a function'
_ENDS: Final = f'{{"{_ANSWER}": text}} ends'
_REMINDER: Final = f'If nothing is left to do, reply {{"{_ANSWER}": text}}.'
"""Follows each result. Without it, small models call until they are stopped."""


_SPELLING: Final[JsonObject] = {
    "x-guidance": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
}
"""Tells the engine's constraint how JSON is set: as in the examples and in earlier turns, without idle white space."""


def offered(request: ResponseCreateParams) -> ResponseCreateParams | None:
    """`request` with its functions as instructions and a constraint; None where it offers none.

    Raises `ModelError` for tools that are no functions, and for a choice that names none of them.
    """
    functions, must_call = _callable(request)
    if not functions:
        return None
    described = "\n".join(json.dumps(_description(function)) for function in functions)
    how = f"Reply with one JSON object: {_CALLS}" + ("." if must_call else f"; {_ENDS}.")
    instructions = "\n\n".join(filter(None, (request.instructions, f"Functions:\n{described}\n{how}")))
    given = [user_message(request.input)] if isinstance(request.input, str) else request.input
    names = {item.call_id: item.name for item in given if isinstance(item, FunctionCall)}
    schemas = [_call_schema(function) for function in functions]
    if not must_call:
        schemas.append(_object({_ANSWER: _answer_schema(request.text)}))
    schema = _SPELLING | (schemas[0] if len(schemas) == 1 else {"anyOf": schemas})
    constraint = JsonSchemaFormat.model_validate({"type": "json_schema", "name": "reply", "schema": schema})
    return request.model_copy(
        update={
            "instructions": instructions,
            "input": [_as_text(item, names, "" if must_call else _REMINDER) for item in given],
            "text": TextConfig(format=constraint),
            "tools": None,
            "tool_choice": None,
            "parallel_tool_calls": None,
        }
    )


def read(response: Response) -> Response:
    """`response` to an offered request, with its JSON as a function call or as a message.

    JSON that was cut off stays as the model wrote it.
    """
    return response.model_copy(update={"output": [_as_item(item, response.id) for item in response.output]})


def _callable(request: ResponseCreateParams) -> tuple[list[FunctionTool], bool]:
    """The functions that may be called now, and whether one of them must be."""
    functions = []
    for tool in request.tools or ():
        if not isinstance(tool, FunctionTool):
            raise ModelError("bad_request", f"local_llm offers functions only, and the request has a {tool.type} tool")
        functions.append(tool)
    match request.tool_choice:
        case "none":
            return [], False
        case None | "auto" | "required" as mode:
            return functions, mode == "required"
        case FunctionChoice(name=name):
            names, must_call = {name}, True
        case AllowedToolsChoice(mode=mode, tools=tools):
            names, must_call = {str(tool.get("name")) for tool in tools}, mode == "required"
        case other:
            raise ModelError("bad_request", f"local_llm offers functions only, and tool_choice is {other.to_dict()}")
    if unknown := names - {function.name for function in functions}:
        raise ModelError("bad_request", f"tool_choice names {', '.join(sorted(unknown))}, which the request lacks")
    return [function for function in functions if function.name in names], must_call


def _description(function: FunctionTool) -> JsonObject:
    described: JsonObject = {"name": function.name}
    if function.description:
        described["description"] = function.description
    return described | {"parameters": (function.parameters or {}).get("properties", {})}


def _call_schema(function: FunctionTool) -> JsonObject:
    arguments = function.parameters or {"type": "object", "properties": {}, "additionalProperties": False}
    return _object({_FUNCTION: {"const": function.name}, _ARGUMENTS: arguments})


def _answer_schema(text: TextConfig | None) -> JsonObject:
    match text.format if text else None:
        case JsonSchemaFormat(schema_=schema):
            return schema
        case JsonObjectFormat():
            return {"type": "object"}
    return {"type": "string"}


def _object(properties: JsonObject) -> JsonObject:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _as_text(item: Item, names: dict[str, str], reminder: str) -> Item:
    """An item of an earlier turn, in the form in which the model wrote or read it."""
    match item:
        case FunctionCall(name=name, arguments=arguments):
            return _said({_FUNCTION: name, _ARGUMENTS: _decoded(arguments)})
        case FunctionCallOutput(call_id=call_id, output=output):
            heading, ending = f"Result of {names.get(call_id or '', 'a function')}: ", f"\n{reminder}".rstrip()
            if isinstance(output, str):
                return user_message(heading + output + ending)
            return user_message([input_text(heading), *output, *([input_text(ending)] if ending else [])])
        case OutputMessage(text=text) | InputMessage(role="assistant", text=text):
            return _said({_ANSWER: text})
    return item


def _said(document: JsonObject) -> InputMessage:
    return InputMessage(role="assistant", content=json.dumps(document, ensure_ascii=False))


def _as_item(item: Item, response_id: str) -> Item:
    if not isinstance(item, OutputMessage):
        return item
    match _decoded(item.text):
        case {"function": str(name), "arguments": dict(arguments)}:
            stem = response_id.removeprefix("resp_")
            return FunctionCall(
                type="function_call",
                id=f"fc_{stem}",
                call_id=f"call_{stem}",
                name=name,
                arguments=json.dumps(arguments, ensure_ascii=False),
                status="completed",
            )
        case {"answer": answer}:
            text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
            return output_message(text, item_id=item.id or "")
    return item


def _decoded(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
