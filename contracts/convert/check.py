"""What the converters of whole documents share: fields that pass as they are, and the check of what was made."""

import math
from typing import Final, TypeVar

from pydantic import ValidationError

from contracts.base import ApiModel, JsonObject
from contracts.errors import NoChatForm, NoResponsesForm
from contracts.problems import problems

M = TypeVar("M", bound=ApiModel)
NoForm = type[NoChatForm] | type[NoResponsesForm]

SAME: Final = (
    "model", "temperature", "top_p", "parallel_tool_calls", "metadata", "store", "stream", "stream_options",
    "service_tier", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "user",
)  # fmt: skip
"""Options of a request that both APIs have under one name."""

LOGPROBS: Final = "message.output_text.logprobs"
"""What a Responses request includes to get log-probabilities."""

_SHORT: Final = 80


def keep(extra: JsonObject | None, body: JsonObject, error: NoForm) -> None:
    """Adds fields that pass as they are; refuses one that is there already with another value, or is no JSON."""
    for name, value in (extra or {}).items():
        if not _finite(value):
            raise error(name, f"{name} holds NaN or an infinite number, which JSON does not have: {short(value)}")
        if body.setdefault(name, value) != value:
            raise error(name, f"{name} is said twice: as {short(value)}, and by another option as {short(body[name])}")


def checked(model: type[M], body: JsonObject, error: NoForm) -> M:
    """`body` as a `model`; a field that passed as it is may turn out to be wrong there."""
    try:
        return model.model_validate(body)
    except ValidationError as invalid:
        place, why = problems(invalid, body)[0]
        raise error(place.partition(".")[0], f"{place} cannot be passed on: {why}") from invalid


def _finite(value: object) -> bool:
    """Whether all numbers in a JSON value are; NaN would also differ from itself."""
    if isinstance(value, dict):
        return all(map(_finite, value.values()))
    if isinstance(value, list):
        return all(map(_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def short(value: object) -> str:
    """`value` for a message."""
    text = repr(value)
    return text if len(text) <= _SHORT else text[:_SHORT] + "…"
