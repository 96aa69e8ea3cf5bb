"""How a config's faults are told."""

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError, field_validator

from components.faults import told


class Inner(BaseModel):
    number: int


class Config(BaseModel):
    size: Annotated[int, Field(ge=1, le=9)] = 1
    share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    mode: Literal["fast", "slow"] = "fast"
    on: bool = True
    name: str = ""
    names: tuple[str, ...] = ()
    extra: dict[str, int] = {}
    inner: Inner = Inner(number=1)

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if value == "sk-abcdef":
            raise ValueError("may not be that")
        return value


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"size": "many"}, "must be a whole number"),
        ({"size": 1.5}, "must be a whole number"),
        ({"size": 0}, "must be at least 1"),
        ({"size": 10}, "must be at most 9"),
        ({"share": "x"}, "must be a number"),
        ({"share": 0}, "must be more than 0.0"),
        ({"share": 1}, "must be less than 1.0"),
        ({"mode": "fst"}, "must be 'fast' or 'slow'"),
        ({"on": "maybe"}, "must be true or false"),
        ({"name": 3}, "must be a text"),
        ({"name": "sk-abcdef"}, "may not be that"),
        ({"names": "x"}, "must be a list"),
        ({"extra": []}, "must hold keys and values"),
        ({"inner": "x"}, "must hold keys and values"),
        ({"inner": {}}, "is missing, and is needed"),
    ],
)
def test_a_fault_is_one_sentence_without_the_value(config: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError) as raised:
        Config.model_validate(config)
    assert [told(fault) for fault in raised.value.errors()] == [said]
