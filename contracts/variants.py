"""How a document's variant is found among the members of a union, fast and without refusing what is new.

Used by the unions of `contracts.responses` and `contracts.chat`. Where a member says its `type` (or `role`), pydantic
looks the member up by it, in Rust, whatever their number. Only a value that this finds no member for, or that its
member refuses, comes to a second union whose tag is computed in Python: it holds the variants of unknown type.
"""

from collections.abc import Callable, Mapping
from typing import Final, Literal, get_args, get_origin

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

FieldPath = list[str | int]

NO_VARIANT: Final = "no_variant"
"""Type of the error that no member was found; errors from within the value, if there are any, say more."""

KNOWN: Final = "<known>"
UNKNOWN: Final = "<unknown>"
"""How an error's location names the two unions; the tag follows."""


class Variants:
    """Marks a union of models as told apart by the literals of one field.

    The member where that field is any string takes what no other member claims.
    """

    def __init__(self, by: str = "type") -> None:
        self._by = by

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The union, for pydantic."""
        known: dict[str, CoreSchema] = {}
        unknown: dict[str, CoreSchema] = {}
        for member in get_args(source):
            names = literals(member, self._by)
            if names:
                known.update(dict.fromkeys(names, handler.generate_schema(member)))
            else:
                unknown["unknown"] = handler.generate_schema(member)

        def tag(value: object) -> str | None:
            name = read(value, self._by)
            return "unknown" if isinstance(name, str) and name not in known else None

        return union(known, [[self._by]], unknown, tag)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The members side by side, for JSON Schema: how they are looked up is no matter of its."""
        found: list[JsonSchemaValue] = []
        queue = [handler(schema)]
        while queue:
            branch = queue.pop(0)
            inner = branch.get("anyOf", branch.get("oneOf"))
            if inner is not None:
                queue[:0] = inner
            elif branch not in found:
                found.append(branch)
        return {"anyOf": found}


def union(
    known: Mapping[str, CoreSchema],
    by: list[FieldPath],
    rest: Mapping[str, CoreSchema],
    tag: Callable[[object], str | None],
) -> CoreSchema:
    """The union of `known`, looked up by the first field of `by` that is there, and of `rest`, looked up by `tag`."""
    fields = " or ".join(f"`{path[-1]}`" for path in by)
    wanted = f"Input should be an object with a {fields}" + ("" if rest else f", one of: {', '.join(known)}")
    first = core_schema.tagged_union_schema(dict(known), by, custom_error_type=NO_VARIANT, custom_error_message=wanted)
    second = core_schema.tagged_union_schema(dict(rest), tag, custom_error_type=NO_VARIANT, custom_error_message=wanted)
    return core_schema.union_schema(
        [(first, KNOWN), (second, UNKNOWN)] if rest else [first],
        mode="left_to_right",
        # By the instance's own class: faster than to search the union, and a subclass keeps its fields.
        serialization=core_schema.simple_ser_schema("any"),
    )


def literals(member: type[BaseModel], field: str) -> tuple[str, ...]:
    """The values that `field` of `member` can have, empty if that is open."""
    annotation = member.model_fields[field].annotation
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def read(value: object, field: str) -> object:
    """The value of `field` in a document or a model, None if it has none."""
    return value.get(field) if isinstance(value, dict) else getattr(value, field, None)
