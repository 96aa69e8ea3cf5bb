"""A tool's return value becomes an output, a verifier's a reward, and what is neither is never passed off as one."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

from components.resources import Reward
from components.resources.errors import MetricsFailed, VerifyFailed
from components.resources.results import metrics_of, output_of, problem, verdict_of
from contracts.responses import InputImage, InputText


class Place(BaseModel):
    name: str
    height_m: float


@dataclass
class Pair:
    a: int
    b: int


def _read(value: object) -> Any:
    return msgspec.json.decode(output_of(value).output)


@pytest.mark.parametrize(
    ("value", "output"),
    [
        ("plain text", "plain text"),
        ("", ""),
        ('{"already": "JSON"}', '{"already": "JSON"}'),
        (3, "3"),
        (2.5, "2.5"),
        (True, "true"),
        (None, "null"),
        ({"a": [1, "ü"]}, '{"a":[1,"ü"]}'),
        ([1, 2], "[1,2]"),
        ([], "[]"),
        (Place(name="K2", height_m=8611), '{"name":"K2","height_m":8611.0}'),
        ([Place(name="K2", height_m=8611)], '[{"name":"K2","height_m":8611.0}]'),
        (Pair(1, 2), '{"a":1,"b":2}'),
        (datetime(2026, 1, 2, tzinfo=UTC), '"2026-01-02T00:00:00Z"'),
        ([{"type": "other"}], '[{"type":"other"}]'),
        ("half a pair \ud83d", "half a pair ?"),
    ],
)
def test_text_passes_as_it_is_and_everything_else_as_json_text(value: object, output: str) -> None:
    assert _read(value) == output


def test_content_parts_pass_as_parts() -> None:
    text, image = InputText(type="input_text", text="see"), InputImage(type="input_image", image_url="data:,")
    parts = [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": "data:,"}]
    assert _read([text, image]) == parts
    assert _read(parts) == parts
    assert _read(image) == [parts[1]]


@pytest.mark.parametrize(
    "value",
    [
        object(),
        math.nan,
        {"x": [math.inf]},
        [{"type": "input_text", "text": "see", "score": -math.inf}],
    ],
)
def test_what_json_cannot_say_is_refused(value: object) -> None:
    with pytest.raises(PydanticSerializationError):
        output_of(value)


def test_text_about_what_json_cannot_say_passes() -> None:
    assert _read({"x": "NaN is no -Infinity"}) == '{"x":"NaN is no -Infinity"}'


def test_a_problem_is_json_text_with_an_error_of_bounded_length() -> None:
    said = msgspec.json.decode(msgspec.json.decode(problem("x" * 100_000 + "\ud83d").output))
    assert said["error"].startswith("xxx")
    assert len(said["error"]) < 2100


@pytest.mark.parametrize(
    ("value", "reward"), [(1, 1.0), (0.25, 0.25), (True, 1.0), (False, 0.0), (-2, -2.0), (Fraction(1, 2), 0.5)]
)
def test_numbers_and_truths_are_rewards(value: object, reward: float) -> None:
    verdict = verdict_of(value, "X.verify")
    assert verdict.reward == reward
    assert type(verdict.reward) is float
    assert verdict.extra == {}


@pytest.mark.parametrize("value", [None, "1", [1.0], object(), math.nan, math.inf, -math.inf, Decimal(1), 1j, {}])
def test_what_is_no_finite_number_is_an_error_and_never_zero(value: Any) -> None:
    with pytest.raises(VerifyFailed, match=r"X\.verify returned"):
        verdict_of(value, "X.verify")
    with pytest.raises(VerifyFailed, match=r"X\.verify returned a Reward whose reward is"):
        verdict_of(Reward.model_construct(reward=value), "X.verify")


@pytest.mark.parametrize("value", [10**400, -(10**400), Fraction(10**400)])
def test_a_number_that_is_too_large_for_a_reward_is_an_error(value: Any) -> None:
    with pytest.raises(VerifyFailed, match=r"X\.verify returned a number that no float can hold"):
        verdict_of(value, "X.verify")
    with pytest.raises(VerifyFailed, match="no float can hold"):
        verdict_of(Reward(reward=1.0, reward_components={"a": 1e308, "b": 1e308}), "X.verify")


def test_reward_components_must_sum_to_the_reward() -> None:
    parts = {"format": 0.1, "answer": 0.2}
    verdict = verdict_of(Reward(reward=0.3, reward_components=parts), "X.verify")
    assert msgspec.json.decode(verdict.extra["reward_components"]) == parts
    with pytest.raises(VerifyFailed, match=r"components that sum to 0\.3, but the reward 0\.4"):
        verdict_of(Reward(reward=0.4, reward_components=parts), "X.verify")
    with pytest.raises(VerifyFailed, match="'answer' as nan"):
        verdict_of(Reward(reward=0.1, reward_components={"format": 0.1, "answer": math.nan}), "X.verify")


def test_no_components_sum_to_nothing() -> None:
    with pytest.raises(VerifyFailed, match="sum to 0"):
        verdict_of(Reward(reward=1.0, reward_components={}), "X.verify")


def test_further_fields_of_a_reward_go_along_as_json() -> None:
    verdict = verdict_of(Reward(reward=1.0, place=Place(name="K2", height_m=8611), loss=math.nan), "X.verify")
    assert {name: msgspec.json.decode(raw) for name, raw in verdict.extra.items()} == {
        "place": {"name": "K2", "height_m": 8611.0},
        "loss": None,
    }


def test_a_field_that_the_result_line_has_already_or_that_json_cannot_say_is_an_error() -> None:
    with pytest.raises(VerifyFailed, match="the field 'response', which the result line has already"):
        verdict_of(Reward(reward=1.0, response="mine"), "X.verify")
    with pytest.raises(VerifyFailed, match="field 'thing' JSON cannot say"):
        verdict_of(Reward(reward=1.0, thing=object()), "X.verify")


def test_metrics_are_a_json_object_or_an_error() -> None:
    assert metrics_of({"a": 1, "b": math.nan, "c": Pair(1, 2)}, "X") == {"a": 1, "b": None, "c": {"a": 1, "b": 2}}
    with pytest.raises(MetricsFailed, match="X returned None, not a dict"):
        metrics_of(None, "X")
    with pytest.raises(MetricsFailed, match="JSON cannot say"):
        metrics_of({"a": object()}, "X")
