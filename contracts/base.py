"""What the models of the OpenAI APIs have in common; the base of `contracts.responses` and `contracts.chat`.

The rule of these models is that nothing is lost. Unknown fields are kept, a field that was absent stays absent, null
stays null, a variant of an unknown type is kept whole, and a value of the wrong JSON type is refused instead of
converted (`true` is no number, `"3"` is no integer). Does no I/O.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias, get_args, get_origin

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object whose content is not ours to know: a JSON schema, a hosted tool's data."""

Number: TypeAlias = int | float
"""A JSON number that keeps its form: `1` does not become `1.0`."""


class ApiModel(BaseModel):
    """A part of an OpenAI API document.

    A default is always None and means "not given", so `to_json` writes exactly what was parsed or passed.
    """

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False, serialize_by_alias=True)

    def to_json(self) -> bytes:
        """The document as UTF-8 JSON, without the fields that were never given."""
        return self.model_dump_json(exclude_unset=True).encode()

    def to_dict(self) -> JsonObject:
        """The document as JSON values, without the fields that were never given."""
        return self.model_dump(mode="json", exclude_unset=True)


def type_of(value: object) -> object:
    """The `type` of a variant, given as JSON or as a model."""
    return value.get("type") if isinstance(value, dict) else getattr(value, "type", None)


class Variants:
    """Marks a union of models as told apart by their `type`, at the cost of one lookup whatever their number.

    The member whose `type` is a plain string takes every type that no other member claims. `tag` replaces the lookup
    where `type` alone does not decide; members named in `tags` are chosen by that tag instead of by their type.
    """

    _OTHER: Final = "other"

    def __init__(
        self, tag: Callable[[object], object] = type_of, tags: Mapping[type[ApiModel], str] | None = None
    ) -> None:
        self._tag, self._tags = tag, tags or {}

    def _names(self, member: type[ApiModel]) -> tuple[str, ...]:
        if member in self._tags:
            return (self._tags[member],)
        annotation = member.model_fields["type"].annotation
        return get_args(annotation) if get_origin(annotation) is Literal else (self._OTHER,)

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The tagged union, for pydantic."""
        choices: dict[str, CoreSchema] = {}
        for member in get_args(source):
            schema = handler.generate_schema(member)
            choices.update((name, schema) for name in self._names(member))
        get_tag, other = self._tag, self._OTHER if self._OTHER in choices else None

        def tag(value: object) -> str | None:
            name = get_tag(value)
            if name in choices:
                return name
            return other if isinstance(name, str) else None

        return core_schema.tagged_union_schema(
            choices,
            tag,
            custom_error_type="variant",
            custom_error_message="Input should be an object whose `type` is one of: " + ", ".join(sorted(choices)),
        )
