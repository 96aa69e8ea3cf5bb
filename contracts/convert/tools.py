"""How tools, and what a model must call of them, are said in the other API. Used by `contracts.convert.request`."""

from collections.abc import Sequence
from typing import Final

from contracts import chat
from contracts import responses as r
from contracts.base import JsonObject
from contracts.convert.parts import given
from contracts.convert.style import ChatStyle, leave_out
from contracts.errors import NoChatForm, NoResponsesForm

_FUNCTION_FIELDS: Final = (
    "name", "description", "parameters", "strict", "output_schema", "defer_loading", "allowed_callers",
)  # fmt: skip
_ONLY_OURS: Final = "only function and custom tools are called by the agent"
_NESTED: Final = ("function", "custom")
"""Types of tools whose fields Chat Completions puts one level down, under the type's name."""


# ------------------------------------------------------------------------------------------- Responses -> Chat


def tools_to_chat(tools: Sequence[r.Tool], style: ChatStyle) -> list[JsonObject]:
    """`tools` for Chat Completions; raises `NoChatForm` that names a hosted tool."""
    said: list[JsonObject] = []
    for tool in tools:
        match tool:
            case r.FunctionTool():
                said.append({"type": "function", "function": given(tool, *_FUNCTION_FIELDS)})
            case r.CustomTool():
                custom = given(tool, "name", "description", "defer_loading", "allowed_callers")
                if tool.format is not None:
                    custom["format"] = _grammar_to_chat(tool.format)
                said.append({"type": "custom", "custom": custom})
            case _:
                leave_out(tool.type, f"it is a tool that the engine itself runs, and {_ONLY_OURS}", style)
    return said


def choice_to_chat(choice: r.ToolChoice) -> str | JsonObject:
    """`choice` for Chat Completions; raises `NoChatForm` that names a hosted tool."""
    match choice:
        case str():
            return choice
        case r.FunctionChoice() | r.CustomChoice():
            return _nest(choice.to_dict())
        case r.AllowedToolsChoice():
            tools = [_nest(tool) for tool in choice.tools]
            return {"type": "allowed_tools", "allowed_tools": {"mode": choice.mode, "tools": tools}, **given(choice)}
        case _:
            raise _hosted_choice(choice.type)


def _nest(named: JsonObject) -> JsonObject:
    """`{"type": t, "name": n}` as `{"type": t, t: {"name": n}}`."""
    kind = named.get("type")
    if kind not in _NESTED:
        raise _hosted_choice(str(kind))
    if kind in named:  # already said as Chat Completions does
        return named
    return {"type": kind, kind: {name: value for name, value in named.items() if name != "type"}}


def _hosted_choice(kind: str) -> NoChatForm:
    return NoChatForm(
        kind,
        f"tool_choice asks for {kind}, which has no form in Chat Completions: {_ONLY_OURS}. Choose a function or a "
        "custom tool, or use a model behind a Responses endpoint",
    )


def _grammar_to_chat(form: JsonObject) -> JsonObject:
    if form.get("type") != "grammar" or "grammar" in form:
        return form
    return {"type": "grammar", "grammar": {name: value for name, value in form.items() if name != "type"}}


# ------------------------------------------------------------------------------------------- Chat -> Responses


def tools_from_chat(tools: Sequence[chat.Tool]) -> list[JsonObject]:
    """`tools` for the Responses API; tools of unknown type stay as they are."""
    said: list[JsonObject] = []
    for tool in tools:
        match tool:
            case chat.FunctionTool():
                function = given(tool.function, "name", "description", "parameters", "strict")
                said.append({"type": "function", **function, **given(tool)})
            case chat.CustomTool():
                custom = given(tool.custom, "name", "description")
                if tool.custom.format is not None:
                    custom["format"] = _grammar_from_chat(tool.custom.format)
                said.append({"type": "custom", **custom, **given(tool)})
            case chat.UnknownTool():
                said.append(tool.to_dict())
    return said


def choice_from_chat(choice: chat.ToolChoice) -> str | JsonObject:
    """`choice` for the Responses API; choices of unknown type stay as they are."""
    match choice:
        case str():
            return choice
        case chat.FunctionChoice():
            return {"type": "function", **choice.function.to_dict(), **given(choice)}
        case chat.CustomChoice():
            return {"type": "custom", **choice.custom.to_dict(), **given(choice)}
        case chat.AllowedToolsChoice():
            allowed = choice.allowed_tools
            tools = [_flatten(tool) for tool in allowed.tools]
            return {"type": "allowed_tools", "mode": allowed.mode, "tools": tools, **given(allowed), **given(choice)}
        case chat.UnknownChoice():
            return choice.to_dict()


def _flatten(named: JsonObject) -> JsonObject:
    kind = named.get("type")
    inner = named.get(kind) if kind in _NESTED else None
    if inner is None:
        return named
    if not isinstance(inner, dict):
        raise NoResponsesForm("tool_choice", f"allowed_tools has a tool whose {kind} is no object: {named!r}")
    return {"type": kind, **inner, **{name: value for name, value in named.items() if name not in ("type", kind)}}


def _grammar_from_chat(form: JsonObject) -> JsonObject:
    grammar = form.get("grammar")
    return {"type": "grammar", **grammar} if form.get("type") == "grammar" and isinstance(grammar, dict) else form
