"""What all component configurations share."""

import pytest
from pydantic import BaseModel, Field, ValidationError

from components.config import (
    AgentRef,
    ComponentConfig,
    DatasetConfig,
    ModelRef,
    PoolConfig,
    Reference,
    ResourcesRef,
    references,
)


class Judge(BaseModel):
    model: ModelRef
    weight: float = 1.0


class Everything(ComponentConfig):
    policy: ModelRef
    resources: ResourcesRef | None = None
    note: str = "policy"
    helpers: list[AgentRef] = Field(default_factory=list)
    judges: dict[str, Judge] = Field(default_factory=dict)
    pair: tuple[ModelRef, str] | None = None
    single: Judge | ModelRef | None = None
    open_ended: tuple[ModelRef, ...] = ()


def test_references_are_found_in_fields_lists_dicts_tuples_unions_and_nested_models() -> None:
    config = Everything(
        policy="big",
        resources="calculator",
        helpers=["a", "b"],
        judges={"style": Judge(model="small")},
        pair=("left", "not a reference"),
        single=Judge(model="inner"),
        open_ended=("x", "y"),
    )
    assert references(config) == [
        Reference("policy", "models", "big"),
        Reference("resources", "resources", "calculator"),
        Reference("helpers.0", "agents", "a"),
        Reference("helpers.1", "agents", "b"),
        Reference("judges.style.model", "models", "small"),
        Reference("pair.0", "models", "left"),
        Reference("single.model", "models", "inner"),
        Reference("open_ended.0", "models", "x"),
        Reference("open_ended.1", "models", "y"),
    ]


def test_an_absent_optional_reference_and_a_plain_string_are_no_references() -> None:
    assert references(Everything(policy="big")) == [Reference("policy", "models", "big")]


def test_a_reference_in_a_union_with_a_model_is_found_when_it_is_a_name() -> None:
    assert references(Everything(policy="big", single="named"))[-1] == Reference("single", "models", "named")


def test_an_unknown_key_is_refused_in_every_shared_part() -> None:
    for model, valid in ((PoolConfig, {}), (DatasetConfig, {"name": "d", "path": "p"}), (ComponentConfig, {})):
        with pytest.raises(ValidationError, match="extra_forbidden"):
            model.model_validate({**valid, "wrokers": 2})


def test_a_pool_has_at_least_one_worker_one_place_and_one_slot() -> None:
    for key in ("workers", "concurrency", "slots"):
        with pytest.raises(ValidationError):
            PoolConfig.model_validate({key: 0})
