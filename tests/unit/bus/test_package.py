"""The public face of the bus, its log configuration, and the rules its modules keep."""

import inspect
from pathlib import Path

import pytest
from pydantic import ValidationError

import bus
from bus import LogConfig, errors

ROOT = Path(inspect.getfile(bus)).parent


def test_the_public_names() -> None:
    assert bus.__all__ == [
        "Bus",
        "BusError",
        "Conflict",
        "DeadLetter",
        "Delivery",
        "EmbeddedServer",
        "LogConfig",
        "PayloadTooLarge",
        "Pool",
        "Replies",
        "Subjects",
        "Unreachable",
    ]


def test_the_tree_of_errors_in_the_docstring_is_the_tree_of_the_code() -> None:
    drawn = [line.split("─")[-1].split()[0] for line in (errors.__doc__ or "").splitlines() if "──" in line]
    assert sorted([*drawn, "BusError"]) == sorted(errors.__all__)
    assert all(issubclass(getattr(errors, name), errors.BusError) for name in errors.__all__)


@pytest.mark.parametrize("word", ["token_id", "logprob", "prompt", "completion", "responses_create"])
def test_the_bus_knows_no_word_of_language_models(word: str) -> None:
    assert [path.name for path in ROOT.glob("*.py") if word in path.read_text().lower()] == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"namespace": "a.b"},
        {"namespace": ""},
        {"partitions": 0},
        {"replicas": 3},
        {"durability": "sometimes"},
        {"ack_wait_s": 0},
        {"max_deliver": 0},
        {"colour": "blue"},
    ],
)
def test_a_log_configuration_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    """B13."""
    with pytest.raises(ValidationError):
        LogConfig.model_validate(wrong)


def test_what_another_version_recorded_of_its_log_is_read() -> None:
    recorded = {"namespace": "old", "partitions": 4, "sync_interval": "default", "replicas": 1}
    assert LogConfig.of_record(recorded) == LogConfig(namespace="old", partitions=4)
