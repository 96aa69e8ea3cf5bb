"""A resumed run says how its config differs from the one that it began with."""

from pathlib import Path

from orchestrator.changes import replace_config

BEGAN = "policy:\n  models:\n    chat_model: {base_url: a, deadline_s: 1}\noutput: null\n"
NOW = "policy:\n  models:\n    chat_model: {base_url: b}\noutput: out\n"


def test_a_first_config_is_written_and_nothing_has_changed(tmp_path: Path) -> None:
    assert replace_config(tmp_path, BEGAN) == []
    assert replace_config(tmp_path, BEGAN) == []
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


def test_every_changed_key_is_told_and_the_config_before_is_kept(tmp_path: Path) -> None:
    replace_config(tmp_path, BEGAN)
    assert replace_config(tmp_path, NOW) == [
        "policy.models.chat_model.base_url is 'b', was 'a'",
        "policy.models.chat_model.deadline_s is not there, was 1",
    ]
    assert replace_config(tmp_path, BEGAN) != []
    assert (tmp_path / "config.1.yaml").read_text() == BEGAN
    assert (tmp_path / "config.2.yaml").read_text() == NOW
    assert (tmp_path / "config.yaml").read_text() == BEGAN
