"""An assistant's message as items: reasoning, then the message, then the calls. Used for requests and replies."""

from collections.abc import Collection, Sequence

from contracts import chat
from contracts.base import JsonObject
from contracts.convert import reasoning
from contracts.convert.parts import annotations_from_chat, given, parts_from_chat
from contracts.convert.style import ChatStyle
from contracts.errors import NoResponsesForm


def items_of(
    message: chat.AssistantMessage, style: ChatStyle, *, apart: bool = False, without: Collection[str] = ()
) -> list[JsonObject]:
    """The items that `message` says, without IDs.

    A message item without content is among them only where `message` says nothing else, where fields of the message
    have no other place, or where `apart` asks for one, to keep it from a message of the assistant next to it.
    Fields of the message that the API does not know are kept, unless their names are in `without`.
    """
    if message.function_call is not None:
        raise NoResponsesForm("function_call", "function_call is the form before tool_calls, and names no call ID")
    texts = reasoning.fields_of(message)
    fields = given(message, "name", "audio").items()
    extra = {name: value for name, value in fields if value is not None and name not in without}
    parts = _parts(message)
    if style.reasoning_style == "think_tags" and parts and parts[0]["type"] == "output_text":
        tagged, parts[0]["text"] = reasoning.split_tags(parts[0]["text"])
        texts += tagged
    parts = [part for part in parts if part.get("text") != ""]
    if message.annotations and not _annotated(parts, message.annotations):
        extra["annotations"] = message.annotations
    calls = [_call(call) for call in message.tool_calls or ()]
    items: list[JsonObject] = [reasoning.reasoning_item(texts)] if texts else []
    if parts or extra or apart or not (texts or calls):
        items.append({"type": "message", "role": "assistant", "content": parts, **extra})
    return items + calls


def reasons(message: chat.AssistantMessage, style: ChatStyle) -> bool:
    """Whether `message` has reasoning, so that its first item starts a turn."""
    if reasoning.fields_of(message):
        return True
    content = message.content
    first = content[0] if isinstance(content, list) and content else content
    text = first.text if isinstance(first, chat.TextPart) else first
    return style.reasoning_style == "think_tags" and isinstance(text, str) and bool(reasoning.split_tags(text)[0])


def _parts(message: chat.AssistantMessage) -> list[JsonObject]:
    content = (
        [chat.TextPart(type="text", text=message.content)] if isinstance(message.content, str) else message.content
    )
    parts = parts_from_chat(content or (), "output_text")
    if message.refusal:
        parts.append({"type": "refusal", "refusal": message.refusal})
    return parts


def _annotated(parts: Sequence[JsonObject], annotations: list[JsonObject]) -> bool:
    """Whether there is a text that a message's annotations can be put on: the first one."""
    for part in parts:
        if part["type"] == "output_text":
            part["annotations"] += annotations_from_chat(annotations)
            return True
    return False


def _call(call: chat.ToolCall) -> JsonObject:
    match call:
        case chat.FunctionToolCall(function=function):
            called = {"name": function.name or "", "arguments": function.arguments or "", **given(function)}
            return {"type": "function_call", "call_id": call.id or "", **called, **given(call)}
        case chat.CustomToolCall(custom=custom):
            called = {"name": custom.name or "", "input": custom.input or "", **given(custom)}
            return {"type": "custom_tool_call", "call_id": call.id or "", **called, **given(call)}
        case _:
            raise NoResponsesForm(call.type, f"a tool call of type {call.type} has no item: function and custom have")
