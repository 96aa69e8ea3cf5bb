"""What an item of a conversation says, in words: one label and one text for each part of it.

Pure. Items are taken as plain JSON, so that one of a type that this version does not know is shown as it stands.
Used by `story`.
"""

from typing import Any, Final, NamedTuple

import msgspec


class Said(NamedTuple):
    """A piece of text and who or what it is from."""

    label: str
    text: str
    style: str


_ROLES: Final = {"assistant": "says", "user": "user", "system": "system", "developer": "develop."}
_SHORT_ARGUMENTS: Final = 60


def said_of_item(item: Any) -> list[Said]:
    """The parts of one item of a request's input or a response's output."""
    if not isinstance(item, dict):
        return [Said("item", _json(item), "")]
    match item.get("type"):
        case "message" | None if "role" in item:
            said = _content(_ROLES.get(item["role"], str(item["role"])), item.get("content"))
        case "reasoning":
            said = _reasoning(item)
        case "function_call":
            said = [Said("calls", call_text(str(item.get("name")), item.get("arguments")), "bold")]
        case "custom_tool_call":
            said = [Said("calls", f"{item.get('name')}\n{item.get('input')}", "bold")]
        case "function_call_output" | "custom_tool_call_output":
            said = said_of_output("output", item.get("output"))
        case kind:
            said = [Said("item", f"{kind} {_json({k: v for k, v in item.items() if k != 'type'})}", "")]
    return said


def said_of_output(label: str, output: Any) -> list[Said]:
    """A tool's output: a string or parts."""
    return _content(label, output)


def call_text(name: str, arguments: Any) -> str:
    """A function call as code: short arguments on one line, long ones below each other, broken ones as they stand."""
    try:
        decoded = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, TypeError):
        return f"{name} with arguments that are no JSON: {arguments}"
    if not isinstance(decoded, dict):
        return f"{name}({_json(decoded)})"
    given = [f"{key}={_json(value)}" for key, value in decoded.items()]
    line = ", ".join(given)
    if len(name) + len(line) <= _SHORT_ARGUMENTS:
        return f"{name}({line})"
    below = ",\n".join(f"  {key}={_pretty(value)}" for key, value in decoded.items())
    return f"{name}(\n{below}\n)"


def _reasoning(item: dict[str, Any]) -> list[Said]:
    parts = [*(item.get("content") or ()), *(item.get("summary") or ())]
    said = [Said("thinks", str(part.get("text", "")), "italic") for part in parts if isinstance(part, dict)]
    if not said and (sealed := item.get("encrypted_content")):
        said.append(Said("thinks", f"[encrypted, {len(sealed):,} characters]", "dim"))
    return said


def _content(label: str, content: Any) -> list[Said]:
    if isinstance(content, str):
        return [Said(label, content, "")]
    if not isinstance(content, list):
        return [Said(label, _json(content), "")]
    said: list[Said] = []
    for part in content:
        text, style = _part(part)
        said.append(Said(label if not said else "", text, style))
    return said or [Said(label, "", "")]


def _part(part: Any) -> tuple[str, str]:
    if isinstance(part, dict):
        if isinstance(text := part.get("text"), str):
            return text, ""
        if isinstance(refusal := part.get("refusal"), str):
            return f"refuses: {refusal}", "yellow"
        if (kind := str(part.get("type", "part"))) in ("input_image", "input_file", "input_audio"):
            where = next(
                (str(part[key]) for key in ("filename", "file_id", "image_url", "file_url") if part.get(key)), ""
            )
            shown = where if len(where) <= _SHORT_ARGUMENTS else f"{where[:_SHORT_ARGUMENTS]}…"
            return f"[{kind.removeprefix('input_')} {shown}, {len(_json(part)):,} characters]", "dim"
    return _json(part), "dim"


def _pretty(value: Any) -> str:
    """A value of several lines, indented; strings with line breaks are shown with them."""
    if isinstance(value, str) and "\n" in value:
        lines = value.replace("\n", "\n    ")
        return f'"""\n    {lines}\n  """'
    return _json(value)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
