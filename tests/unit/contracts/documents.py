"""Hypothesis strategies of JSON documents, read off the types that describe them (ours and the openai package's)."""

import functools
import json
import types
import typing
from typing import Any, Literal, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from pydantic import BaseModel
from typing_extensions import is_typeddict

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=8), inner, max_size=2),
    max_leaves=4,
)

_NEW_KEYS = st.sampled_from(
    ["prompt_token_ids", "generation_log_probs", "_ng_x", "model_dump", "to_json", "copy", "größe", "", "a.b", "self"]
)
_SCHEMAS = st.dictionaries(st.text(max_size=6), JSON_VALUES, max_size=2)
"""JSON Schemas are objects, where the openai package says `object`: anything."""
_LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=12),
    int: st.integers(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    type(None): st.none(),
    Any: JSON_VALUES,
    object: JSON_VALUES,
}


def canonical(document: object) -> str:
    """Text that is equal for equal documents only: `1`, `1.0` and `true` are three things."""
    return json.dumps(document, sort_keys=True)


@functools.cache
def documents(annotation: Any, *, extra: bool = False) -> st.SearchStrategy[Any]:
    """Documents of that type. `extra` adds fields that the type does not know, at every level."""
    if annotation in _LEAVES:
        return _LEAVES[annotation]
    if (fields := _fields(annotation)) is not None:
        return _objects(fields, extra=extra)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is dict:
        return st.dictionaries(st.text(max_size=6), documents(arguments[1], extra=extra), max_size=2)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([documents(member, extra=extra) for member in arguments])
    assert arguments, f"no documents of {annotation!r}"
    inner = documents(arguments[0], extra=extra)
    wraps = origin in (typing.Annotated, typing.Required, typing.NotRequired)
    return inner if wraps else st.lists(inner, max_size=2)  # list, Iterable, SequenceNotStr…


def _fields(annotation: Any) -> dict[str, tuple[Any, bool]] | None:
    """A model's or typed dict's fields by their names on the wire, with their types and whether they are required."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = annotation.model_fields.items()
        return {field.alias or name: (field.annotation, field.is_required()) for name, field in fields}
    if is_typeddict(annotation):
        hints = get_type_hints(annotation, include_extras=True)
        return {name: (hint, get_origin(hint) is typing.Required) for name, hint in hints.items()}
    return None


def _objects(fields: dict[str, tuple[Any, bool]], *, extra: bool) -> st.SearchStrategy[dict[str, Any]]:
    values = {
        name: _SCHEMAS if name == "parameters" else documents(annotation, extra=extra)
        for name, (annotation, _) in fields.items()
    }
    required = {name: values[name] for name, (_, needed) in fields.items() if needed}
    optional = {name: value for name, value in values.items() if name not in required}
    known = st.fixed_dictionaries(required, optional=optional)
    if not extra:
        return known
    new = st.dictionaries(_NEW_KEYS.filter(lambda key: key not in fields), JSON_VALUES, max_size=2)
    return st.builds(lambda given, more: given | more, known, new)
