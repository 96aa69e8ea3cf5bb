"""What an author of a model writes against."""

import pytest

from components.models.base import Model, ModelCall, ModelConfig
from components.models.errors import ModelError
from contracts.events import CallError
from contracts.responses import ResponseCreateParams


class EchoConfig(ModelConfig):
    prefix: str = ""


class Echo(Model[EchoConfig]):
    pass


class Plain(Model):
    pass


def test_the_config_type_is_the_one_in_the_brackets() -> None:
    assert Echo.config_class() is EchoConfig
    assert Plain.config_class() is ModelConfig


async def test_a_model_without_responses_says_so() -> None:
    model = Echo(EchoConfig())
    with pytest.raises(NotImplementedError, match="Echo defines no `responses`"):
        await model.responses(ResponseCreateParams(input="hi"), ModelCall(rollout_id="r", call_key="m_0"))


def test_an_error_goes_into_the_log_with_its_kind_and_details() -> None:
    error = ModelError("unavailable", "the engine is away", details={"status": "503"})
    assert error.call_error() == CallError(kind="unavailable", message="the engine is away", details={"status": "503"})
    assert error.transient
    assert not ModelError("context_length", "too long").transient
