"""What the models of the OpenAI APIs have in common; the base of `contracts.responses` and `contracts.chat`.

The rule of these models is that nothing is lost. Unknown fields are kept, a field that was absent stays absent, null
stays null, a variant of an unknown type is kept whole (`contracts.variants`), and a value of the wrong JSON type is
refused instead of converted (`true` is no number, `"3"` is no integer). Does no I/O.
"""

from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict

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
        return self.__pydantic_serializer__.to_json(self, exclude_unset=True)  # `model_dump_json` would make it a str

    def to_dict(self) -> JsonObject:
        """The document as JSON values, without the fields that were never given."""
        return self.model_dump(mode="json", exclude_unset=True)
