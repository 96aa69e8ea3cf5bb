"""What does a reply, or a task, look like after an edit?

Called by `fork`. Pure. A place in it is named by a path of keys and indices, `output.0.content.0.text`; -1 is the last.
`text` is what a model said last, instead of whatever it did where it said nothing. A value is JSON where it can be;
what was a text stays one. What comes of it is checked (`forms`).
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from contracts.events import CallError
from contracts.responses import output_message
from contracts.rollouts import ToolOutput
from replay.errors import Misused
from replay.forms import check_reply, check_task
from replay.trajectory import Call

TEXT: Final = "text"
_DROPPED: Final = CallError(kind="unavailable", message="dropped in a fork: this call was made to fail")


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """What is changed; nothing by default."""

    reply: bytes | None = None
    """JSON that takes the reply's place."""
    fields: Sequence[str] = ()
    """`path=value`, the value JSON or else text."""
    drop: bool = False
    """The call fails."""

    @property
    def given(self) -> bool:
        """Whether anything is changed."""
        return self.reply is not None or bool(self.fields) or self.drop


def edited_reply(call: Call, data: bytes, edit: Edit) -> tuple[str, bytes]:
    """Type and data of the edited reply, whose data was this. Raises `Misused`."""
    if edit.drop:
        return f"{call.what}.failed", msgspec.json.encode(_DROPPED)
    assert call.replied is not None
    if edit.reply is None:
        what = "failed" if call.failed else call.what
        found = _edited(data, edit.fields, what)
        check_reply(what, found, data, _told(edit.fields))
        return call.replied.event.type, found
    reply = _json(edit.reply)
    if call.what == "tool":
        reply = _as_output(reply)
    check_reply(call.what, reply, data, f"--set-reply for call {call.key}")
    if call.what == "tool" and not call.failed:
        reply = _with_snapshot(reply, data)
    return f"{call.what}.replied", reply


def edited_task(task: bytes, fields: Sequence[str]) -> bytes:
    """A task with some of its fields set. Raises `Misused`."""
    found = _edited(task, fields, "task")
    check_task(found, _told(fields))
    return found


def _told(fields: Sequence[str]) -> str:
    return " ".join(f"--edit {field}" for field in fields)


def _edited(data: bytes, fields: Sequence[str], what: str) -> bytes:
    """JSON with some of its fields set. Raises `Misused` that names what is there."""
    tree = msgspec.json.decode(data)
    for field in fields:
        path, equals, value = field.partition("=")
        if not equals or not path:
            raise Misused(f"--edit {field}: give PATH=VALUE, like output.0.content.0.text=Yes")
        _set(tree, _places(tree, path, what), value, path)
    return msgspec.json.encode(tree)


def _as_output(reply: bytes) -> bytes:
    """The reply of a tool, of which the output alone may be given."""
    return reply if reply.startswith(b"{") else msgspec.json.encode(ToolOutput(output=msgspec.Raw(reply)))


def _with_snapshot(reply: bytes, before: bytes) -> bytes:
    """A tool's output is only what the agent reads: the session stays as the call left it."""
    new = msgspec.json.decode(reply, type=ToolOutput)
    if new.snapshot is not None:
        return reply
    return msgspec.json.encode(
        msgspec.structs.replace(new, snapshot=msgspec.json.decode(before, type=ToolOutput).snapshot)
    )


def _json(reply: bytes) -> bytes:
    try:
        return msgspec.json.encode(msgspec.json.decode(reply))
    except msgspec.DecodeError as error:
        raise Misused(f"--set-reply: the file is no JSON: {error}") from error


def _value(text: str, before: Any) -> Any:
    """JSON where it is some, else text; what is a text stays one."""
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    return text if isinstance(before, str) and not isinstance(found, str) else found


def _places(tree: Any, path: str, what: str) -> list[str]:
    if path != TEXT or (isinstance(tree, dict) and TEXT in tree):
        return path.split(".")
    if what != "model":
        raise Misused(f"--edit {TEXT}=…: this is no model's reply; it holds {_held(tree)}")
    for place, item in reversed(list(enumerate(tree.get("output") or ()))):
        if isinstance(item, dict) and item.get("type") == "message":
            return ["output", str(place), "content", "-1", "text"]
    tree["output"] = [output_message("", item_id="msg_edited").model_dump(mode="json", exclude_none=True)]
    return ["output", "0", "content", "-1", "text"]


def _set(tree: Any, places: list[str], value: str, path: str) -> None:
    for depth, place in enumerate(places):
        last = depth == len(places) - 1
        if isinstance(tree, dict) and (last or place in tree):
            if last:
                tree[place] = _value(value, tree.get(place))
                return
            tree = tree[place]
        elif isinstance(tree, list) and _index(place, tree) is not None:
            if last:
                tree[int(place)] = _value(value, tree[int(place)])
                return
            tree = tree[int(place)]
        else:
            above = ".".join(places[:depth]) or "it"
            raise Misused(f"--edit {path}=…: there is no {place!r} in {above}, which holds {_held(tree)}")


def _index(place: str, tree: list[Any]) -> int | None:
    number = int(place) if place.lstrip("-").isdigit() else len(tree)
    return number if -len(tree) <= number < len(tree) else None


def _held(tree: Any) -> str:
    if isinstance(tree, dict):
        return ", ".join(tree) or "nothing"
    return f"the items 0 to {len(tree) - 1}" if isinstance(tree, list) else msgspec.json.encode(tree).decode()[:80]
