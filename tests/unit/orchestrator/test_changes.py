"""A resumed run says how its config differs from the one that it began with."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.changes import check_log, replace_config
from orchestrator.errors import UsageError

BEGAN = "policy:\n  models:\n    chat_model: {base_url: a, deadline_s: 1}\nlog: {max_bytes: -1}\noutput: null\n"
NOW = "policy:\n  models:\n    chat_model: {base_url: b}\nlog: {max_bytes: 100000}\noutput: out\n"


def test_a_first_config_is_written_and_nothing_has_changed(tmp_path: Path) -> None:
    assert replace_config(tmp_path, BEGAN) == []
    assert replace_config(tmp_path, BEGAN) == []
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


def test_every_changed_key_is_told_and_the_config_before_is_kept(tmp_path: Path) -> None:
    replace_config(tmp_path, BEGAN)
    assert replace_config(tmp_path, NOW) == [
        "policy.models.chat_model.base_url is 'b', was 'a'",
        "policy.models.chat_model.deadline_s is not there, was 1",
        "log.max_bytes is 100000, was no bound",
    ]
    assert replace_config(tmp_path, BEGAN) != []
    assert (tmp_path / "config.1.yaml").read_text() == BEGAN
    assert (tmp_path / "config.2.yaml").read_text() == NOW
    assert (tmp_path / "config.yaml").read_text() == BEGAN


def tree(*, namespace: str = "jetgym", partitions: int = 1, url: str | None = None) -> dict[str, Any]:
    return {"log": {"namespace": namespace, "partitions": partitions}, "server": {"url": url}}


def begun(folder: Path, config: dict[str, Any]) -> Path:
    replace_config(folder, yaml.safe_dump(config))
    return folder


def test_a_run_goes_on_in_the_log_that_it_began_in(tmp_path: Path) -> None:
    check_log(tmp_path, tree(namespace="foo"))  # it was stopped before it had begun
    check_log(begun(tmp_path, tree()), tree())
    with pytest.raises(
        UsageError, match=r"log\.namespace is 'foo', and the run .* Resume it with \+\+log\.namespace=jet"
    ):
        check_log(tmp_path, tree(namespace="foo"))
    with pytest.raises(UsageError, match=r"log\.partitions is 2, .* Resume it with \+\+log\.partitions=1, or start"):
        check_log(tmp_path, tree(partitions=2))


def test_a_run_on_a_log_elsewhere_goes_on_there_whatever_partitions_a_client_believes_in(tmp_path: Path) -> None:
    begun(tmp_path, tree(url="nats://a:4222", partitions=4))
    check_log(tmp_path, tree(url="nats://a:4222"))
    check_log(tmp_path, tree(url="nats://moved:4222"))
    with pytest.raises(UsageError, match="began with 'jetgym'"):
        check_log(tmp_path, tree(url="nats://a:4222", namespace="foo"))
    with pytest.raises(UsageError, match="would begin an empty one: resume it with --url nats://a:4222"):
        check_log(tmp_path, tree(partitions=4))
