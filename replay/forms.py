"""Is what an edit makes still a reply of its kind, or a task, so that an agent's code can read it?

Called by `edits`. Pure. Without it a reply of another kind would fail in the agent's code, and the agent be blamed.
"""

from typing import Final

import msgspec
from pydantic import ValidationError

from contracts.errors import InvalidTask
from contracts.events import CallError
from contracts.responses import FunctionCallOutput, Response
from contracts.rollouts import RolloutResult, SessionSnapshot, ToolOutput, Verdict
from contracts.tasks import Task
from replay.errors import Misused

_FORMS: Final[dict[str, tuple[str, type[msgspec.Struct]]]] = {
    "tool": ("a tool's output", ToolOutput),
    "verify": ("a verdict", Verdict),
    "agent": ("an agent's result", RolloutResult),
    "failed": ("an error", CallError),
}
_SEEDED: Final = msgspec.json.Decoder(SessionSnapshot | None)


def check_reply(what: str, data: bytes, before: bytes, edit: str) -> None:
    """Raises `Misused` that begins with the `edit` where this is no reply to such a call, or no error (`failed`).

    Fields of a struct that it does not know are refused, unless the reply `before` has them.
    """
    try:
        if what == "model":
            Response.model_validate_json(data)
        elif what == "session":
            _SEEDED.decode(data)
        elif what in _FORMS:
            _check_struct(data, before, _FORMS[what][1])
    except (msgspec.DecodeError, ValidationError, _Unfit) as error:
        name = _FORMS[what][0] if what in _FORMS else f"a {what}'s reply"
        raise Misused(f"{edit}: that is not {name}: {_fault(error)}") from error


def check_task(task: bytes, edit: str) -> None:
    """Raises `Misused` that begins with the `edit` where an agent cannot start from this."""
    try:
        _ = Task(task).responses_create_params
    except (InvalidTask, ValidationError) as error:
        raise Misused(f"{edit}: that is no task: {_fault(error)}") from error


class _Unfit(ValueError):
    """A struct that decodes, and is another one."""


def _check_struct(data: bytes, before: bytes, form: type[msgspec.Struct]) -> None:
    found = msgspec.json.decode(data, type=form)
    known = {*form.__struct_fields__, *_fields(before)}
    if unknown := [name for name in _fields(data) if name not in known]:
        raise _Unfit(f"it has no {', '.join(unknown)}")
    if isinstance(found, ToolOutput):
        output = msgspec.json.decode(found.output)
        FunctionCallOutput(type="function_call_output", call_id="", output=output)


def _fields(data: bytes) -> list[str]:
    found = msgspec.json.decode(data)
    return list(found) if isinstance(found, dict) else []


def _fault(error: Exception) -> str:
    """What is wrong in one line: of several things the first."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
