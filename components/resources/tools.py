"""How does a method become a tool: its name, its JSON Schema, and the check of a model's arguments?

`Resources` calls `tool_of` for each `@tool` method while an author's class is defined, so that a mistake is seen
there; the runtime calls `Tool.arguments` for each call of a model. This module never runs a tool.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final, NotRequired, TypeVar, cast, get_args, get_origin, get_type_hints, overload

import pydantic_core
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic.fields import FieldInfo
from typing_extensions import TypedDict

from components.resources import docstrings
from components.resources.errors import InvalidResources

__all__ = ["SESSION", "BadArguments", "Tool", "marked_name", "tool", "tool_of"]

SESSION: Final = "session"
"""The parameter by which a tool or a verifier asks for the rollout's session."""
RESERVED: Final = frozenset({"verify", "seed_session", "aggregate_metrics", "mcp"})
"""Names that mean something else to a caller of a resources component."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_make_typed_dict: Final = cast("Callable[[str, dict[str, Any]], Any]", TypedDict)
_MARK: Final = "__jetgym_tool__"
_SHOWN_ERRORS: Final = 5

F = TypeVar("F", bound=Callable[..., object])


@overload
def tool(method: F, /) -> F: ...
@overload
def tool(*, name: str) -> Callable[[F], F]: ...
def tool(method: F | None = None, /, *, name: str = "") -> F | Callable[[F], F]:
    """Makes a method a tool that models can call. `def` runs in a thread, `async def` on the event loop.

    The schema comes from the annotations and the docstring; a parameter `session` gets the rollout's session and is
    not shown to the model. `name` is for a tool whose name is not the method's.
    """

    def mark(function: F) -> F:
        setattr(function, _MARK, name or getattr(function, "__name__", ""))
        return function

    return mark if method is None else mark(method)


def marked_name(member: object) -> str | None:
    """The tool name that `@tool` gave to a class member, None where it is no tool."""
    name = getattr(getattr(member, "__func__", member), _MARK, None)  # a static method hides its function's marks
    return name if isinstance(name, str) else None


class BadArguments(ValueError):
    """Arguments that a tool cannot be called with; the message is for the model."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool of a class."""

    name: str
    method: str
    is_async: bool
    wants_session: bool
    function: dict[str, Any]
    """The function tool as it stands in `tools` of a Responses request."""
    expected: str
    """The parameters in words, for the output of a call that got them wrong."""
    _adapter: TypeAdapter[dict[str, Any]]

    def arguments(self, text: str) -> dict[str, Any]:
        """The method's arguments from the JSON text that a model wrote; raises `BadArguments`.

        No text at all counts as `{}`: some engines write that for a call without arguments.
        """
        try:
            return self._adapter.validate_json(text if text.strip() else "{}", strict=True)
        except ValidationError as error:
            problems = list(_problems(error))
        except Exception as error:  # noqa: BLE001 - a validator of the author's own model raised
            problems = [f"{type(error).__name__}: {error}"]
        raise BadArguments(f"{self.name}: {'; '.join(problems)}. It takes {self.expected}")


def _problems(error: ValidationError) -> Iterator[str]:
    found = error.errors(include_url=False, include_input=False, include_context=False)
    for fault in found[:_SHOWN_ERRORS]:
        where = ".".join(str(part) for part in fault["loc"])
        match fault["type"]:
            case "json_invalid":
                yield "the arguments are not valid JSON (" + fault["msg"].removeprefix("Invalid JSON: ") + ")"
            case "dict_type" if not where:
                yield "the arguments are no JSON object"
            case "missing":
                yield f"`{where}` is missing"
            case "extra_forbidden":
                yield f"there is no parameter `{where}`"
            case _:
                yield f"`{where}`: {fault['msg']}"
    if len(found) > _SHOWN_ERRORS:
        yield f"and {len(found) - _SHOWN_ERRORS} more"


# --- a method becomes a tool ------------------------------------------------------------------------------------


def tool_of(owner: type, method: str, name: str) -> Tool:
    """The tool that `owner`'s method is; raises `InvalidResources` that names class, method and parameter."""
    place = f"{owner.__name__}.{method}"
    function = inspect.getattr_static(owner, method)
    if not inspect.isfunction(function):
        raise InvalidResources(place, "a tool is a plain or an async method; put @tool directly above its `def`")
    if not _NAME.fullmatch(name):
        raise InvalidResources(place, f"the tool name {name!r} must be 1 to 64 of the characters A-Z a-z 0-9 _ -")
    if name in RESERVED:
        raise InvalidResources(place, f"the name {name!r} is reserved; name the tool otherwise: @tool(name=...)")
    if not (inspect.getdoc(function) or "").strip():
        raise InvalidResources(place, "a tool needs a docstring: it is what the model reads about it")
    said = docstrings.parse(function.__doc__ or "")
    if not said.description:
        raise InvalidResources(place, "the docstring needs a sentence on what the tool does before its sections")
    parameters = _parameters(function, place)
    shown = {key: parameter for key, parameter in parameters.items() if key != SESSION}
    for documented in said.parameters:
        if documented not in parameters:
            raise InvalidResources(place, f"the docstring describes {documented!r}, which is no parameter")
    adapter = _adapter(place, name, _fields(function, shown, said.parameters, place))
    schema = _schema(adapter, place)
    return Tool(
        name=name,
        method=method,
        is_async=inspect.iscoroutinefunction(function),
        wants_session=SESSION in parameters,
        function={
            "type": "function",
            "name": name,
            "description": said.description,
            "parameters": schema,
            "strict": _is_strict(schema),
        },
        expected=_in_words(schema),
        _adapter=adapter,
    )


def hints_of(function: Callable[..., object], place: str) -> dict[str, Any]:
    """The annotations of an author's method, resolved; raises `InvalidResources` for a name that cannot be found."""
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise InvalidResources(
            place, f"the annotation {error.name!r} cannot be found; import or define it at the top of the module"
        ) from error


def _parameters(function: Callable[..., object], place: str) -> dict[str, inspect.Parameter]:
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters:
        raise InvalidResources(place, "a tool is a method: its first parameter is `self`")
    for parameter in parameters[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise InvalidResources(
                place, f"parameter `{parameter}` cannot be passed by name; a model passes each argument by its name"
            )
        if parameter.annotation is parameter.empty and parameter.name != SESSION:
            raise InvalidResources(place, f"parameter `{parameter.name}` needs a type annotation")
    return {parameter.name: parameter for parameter in parameters[1:]}


def _fields(
    function: Callable[..., object], shown: dict[str, inspect.Parameter], said: dict[str, str], place: str
) -> dict[str, Any]:
    hints = hints_of(function, place)
    fields: dict[str, Any] = {}
    for key, parameter in shown.items():
        extra: dict[str, Any] = {}
        if key in said and not _described(hints[key]):
            extra["description"] = said[key]
        if parameter.default is not parameter.empty:
            extra["json_schema_extra"] = _default(parameter.default)
        annotation: Any = Annotated[hints[key], Field(**extra)] if extra else hints[key]
        fields[key] = annotation if parameter.default is parameter.empty else NotRequired[annotation]
    return fields


def _described(hint: object) -> bool:
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return any(isinstance(mark, FieldInfo) and mark.description for mark in marks)


def _default(value: object) -> dict[str, Any]:
    try:
        return {"default": pydantic_core.to_jsonable_python(value)}
    except pydantic_core.PydanticSerializationError:
        return {}


def _adapter(place: str, name: str, fields: dict[str, Any]) -> TypeAdapter[dict[str, Any]]:
    try:
        return _typed_dict(name, fields)
    except (PydanticSchemaGenerationError, PydanticUserError, TypeError) as error:
        for key, annotation in fields.items():
            try:
                _typed_dict(name, {key: annotation})
            except (PydanticSchemaGenerationError, PydanticUserError, TypeError):
                raise InvalidResources(
                    place, f"parameter `{key}` has a type that JSON cannot carry; use plain types or a pydantic model"
                ) from error
        raise


def _typed_dict(name: str, fields: dict[str, Any]) -> TypeAdapter[dict[str, Any]]:
    made = _make_typed_dict(f"{name}_arguments", fields)
    made.__pydantic_config__ = ConfigDict(extra="forbid")
    adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(made)
    adapter.json_schema()
    return adapter


# --- JSON Schema ------------------------------------------------------------------------------------------------


def _schema(adapter: TypeAdapter[dict[str, Any]], place: str) -> dict[str, Any]:
    schema = _untitled(adapter.json_schema())
    if "$ref" in schema:
        raise InvalidResources(place, "a tool's parameters must not contain themselves")
    return {
        "type": "object",
        "properties": schema.get("properties", {}),
        "required": schema.get("required", []),
        "additionalProperties": False,
    } | ({"$defs": schema["$defs"]} if "$defs" in schema else {})


def _untitled(schema: Any) -> Any:
    """`schema` without the titles that pydantic makes up; a prompt has better uses for the tokens."""
    if isinstance(schema, list):
        return [_untitled(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: _untitled(entry) for name, entry in value.items()}
        if key in ("properties", "$defs")
        else value
        if key in ("default", "const", "enum", "examples")
        else _untitled(value)
        for key, value in schema.items()
        if key != "title" or not isinstance(value, str)
    }


def _is_strict(schema: Any) -> bool:
    """Whether an engine can hold to the schema in OpenAI's strict mode: closed objects, every property required."""
    if isinstance(schema, list):
        return all(_is_strict(entry) for entry in schema)
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object" and (
        schema.get("additionalProperties") is not False
        or set(schema.get("required", ())) != set(schema.get("properties", ()))
    ):
        return False
    return all(
        all(_is_strict(entry) for entry in value.values()) if key in ("properties", "$defs") else _is_strict(value)
        for key, value in schema.items()
        if key not in ("default", "const", "enum", "examples")
    )


def _in_words(schema: dict[str, Any]) -> str:
    parts = [
        f"`{name}` ({_type_in_words(entry)}{'' if name in schema['required'] else ', optional'})"
        for name, entry in schema["properties"].items()
    ]
    return "a JSON object with " + ", ".join(parts) if parts else "no arguments: {}"


def _type_in_words(schema: Any) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(repr(value) for value in schema["enum"])
    if "const" in schema:
        return repr(schema["const"])
    if "anyOf" in schema:
        return " or ".join(_type_in_words(entry) for entry in schema["anyOf"])
    if schema.get("type") == "array" and "items" in schema:
        return f"array of {_type_in_words(schema['items'])}"
    return str(schema.get("type", "object" if "$ref" in schema else "any value"))
