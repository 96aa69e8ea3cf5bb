"""What an author's code returned, as the contracts say it: a tool's output, a session's state, a verifier's reward.

Called by the runtime after each tool, snapshot and verifier. Pure; it never turns a wrong reward into a number.
"""

import math
from contextlib import suppress
from numbers import Real
from typing import Any, Final

import msgspec
import pydantic_core
from pydantic import BaseModel, ConfigDict

from components.resources.errors import MetricsFailed, SnapshotFailed, VerifyFailed
from contracts.responses import InputAudio, InputFile, InputImage, InputText
from contracts.rollouts import ToolOutput, Verdict

__all__ = ["Reward", "is_problem", "metrics_of", "output_of", "problem", "state_of", "verdict_of"]

MAX_PROBLEM: Final = 2000
"""Characters of an error message that a model gets to read."""

_PART_TYPES: Final = frozenset({"input_text", "input_image", "input_file", "input_audio"})
_PARTS: Final = (InputText, InputImage, InputFile, InputAudio)
_TOLERANCE: Final = 1e-6


class Reward(BaseModel):
    """What a verifier returns when a number does not say enough; further fields go into the rollout's result line."""

    model_config = ConfigDict(extra="allow", frozen=True)

    reward: float
    """Finite."""
    reward_components: dict[str, float] | None = None
    """Named parts that sum to the reward."""


_TAKEN: Final = frozenset({"responses_create_params", "response", "rollout_id", "task_index", "rollout_index"})


# --- tools ------------------------------------------------------------------------------------------------------


def output_of(value: object) -> ToolOutput:
    """The output for what a tool returned: text as it is, content parts as parts, all else as JSON text.

    Raises `PydanticSerializationError` for what JSON cannot say.
    """
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, _PARTS):
        return output_of([value])
    if isinstance(value, list) and value and all(_is_part(part) for part in value):
        return ToolOutput(output=msgspec.Raw(_strict(pydantic_core.to_json(value, exclude_none=True))))
    return _text(_strict(pydantic_core.to_json(value)).decode())


def problem(message: str) -> ToolOutput:
    """The output that tells the model what was wrong with its call."""
    if len(message) > MAX_PROBLEM:
        message = message[:MAX_PROBLEM] + "…"
    return _text(msgspec.json.encode({"error": _encodable(message)}).decode())


def is_problem(output: ToolOutput) -> bool:
    """Whether it reads as what `problem` writes."""
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(msgspec.json.decode(output.output, type=str), type=dict[str, str]).keys() == {
            "error"
        }
    return False


def _strict(written: bytes) -> bytes:
    """What pydantic wrote, which may hold numbers that JSON does not have."""
    if b"NaN" in written or b"Infinity" in written:
        try:
            msgspec.json.decode(written, type=msgspec.Raw)
        except msgspec.DecodeError as error:
            raise pydantic_core.PydanticSerializationError("NaN or an infinite number") from error
    return written


def _text(text: str) -> ToolOutput:
    return ToolOutput(output=msgspec.Raw(msgspec.json.encode(_encodable(text))))


def _encodable(text: str) -> str:
    """`text`, with `?` for the half characters that no encoding has."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _is_part(value: object) -> bool:
    return isinstance(value, _PARTS) or (isinstance(value, dict) and value.get("type") in _PART_TYPES)


# --- sessions ---------------------------------------------------------------------------------------------------


def state_of(value: object, place: str) -> msgspec.Raw:
    """What `snapshot` returned; raises `SnapshotFailed` unless JSON gives back the same.

    JSON would take a tuple for a list and a number as a key for a text, and `restore` would get something else.
    """
    try:
        written = msgspec.json.encode(value)
        same = msgspec.json.decode(written) == value
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise SnapshotFailed(f"{place} returned what JSON cannot say: {error}") from error
    if not same:
        message = "what JSON does not give back as it was; use dicts with texts as keys, lists, texts, finite numbers"
        raise SnapshotFailed(f"{place} returned {message}, True, False and None")
    return msgspec.Raw(written)


# --- verifiers --------------------------------------------------------------------------------------------------


def verdict_of(value: object, place: str) -> Verdict:
    """The verdict for what `verify` returned; raises `VerifyFailed` if it holds no finite reward."""
    if not isinstance(value, Reward):
        return Verdict(reward=_number(value, place, "returned"))
    reward = _number(value.reward, place, "returned a Reward whose reward is")
    fields: dict[str, Any] = dict(value.model_extra or {})
    if taken := sorted(_TAKEN & fields.keys()):
        raise VerifyFailed(f"{place} returned a Reward with the field {taken[0]!r}, which the result line has already")
    if value.reward_components is not None:
        fields["reward_components"] = _components(value.reward_components, reward, place)
    return Verdict(reward=reward, extra={name: _json(name, entry, place) for name, entry in fields.items()})


def _number(value: object, place: str, what: str) -> float:
    if not isinstance(value, (float, int)) and not isinstance(value, Real):
        raise VerifyFailed(f"{place} {what} {_shown(value)}, not a number; a reward is a float, an int or a bool")
    try:
        number = float(value)
    except OverflowError as error:
        raise VerifyFailed(f"{place} {what} a number that no float can hold; a reward is a float") from error
    if not math.isfinite(number):
        raise VerifyFailed(f"{place} {what} {number}; a reward is finite")
    return number


def _components(components: dict[str, float], reward: float, place: str) -> dict[str, float]:
    numbers = {
        name: _number(entry, place, f"returned the reward component {name!r} as") for name, entry in components.items()
    }
    try:
        total = math.fsum(numbers.values())
    except OverflowError as error:
        raise VerifyFailed(f"{place} returned reward components whose sum no float can hold") from error
    if not math.isclose(total, reward, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE):
        raise VerifyFailed(f"{place} returned reward components that sum to {total:g}, but the reward {reward:g}")
    return numbers


def _json(name: str, value: object, place: str) -> msgspec.Raw:
    try:
        return msgspec.Raw(_strict(pydantic_core.to_json(value, inf_nan_mode="null")))
    except (pydantic_core.PydanticSerializationError, UnicodeEncodeError) as error:
        raise VerifyFailed(f"{place} returned a Reward whose field {name!r} JSON cannot say: {error}") from error


def _shown(value: object) -> str:
    kind = type(value)
    return "None" if value is None else kind.__name__ if kind.__module__ == "builtins" else f"a {kind.__qualname__}"


# --- metrics ----------------------------------------------------------------------------------------------------


def metrics_of(value: object, place: str) -> dict[str, Any]:
    """What `aggregate_metrics` returned, as JSON values; raises `MetricsFailed` if it is no JSON object."""
    if not isinstance(value, dict):
        raise MetricsFailed(f"{place} returned {_shown(value)}, not a dict")
    try:
        metrics: dict[str, Any] = msgspec.json.decode(_strict(pydantic_core.to_json(value, inf_nan_mode="null")))
    except pydantic_core.PydanticSerializationError as error:
        raise MetricsFailed(f"{place} returned what JSON cannot say: {error}") from error
    return metrics
