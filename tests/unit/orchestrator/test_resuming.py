"""What cannot be gone on with is told with the next step, before anything starts."""

from pathlib import Path

import pytest

from orchestrator.commands.resuming import keep_aside, mend_inputs, resumed_run
from orchestrator.config import load_config
from orchestrator.errors import UsageError
from orchestrator.kept import Kept


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "none has begun in it. Leave --resume out"),
        ({"config.yaml": b"{}"}, "its log has none. Leave --resume out"),
        ({"config.yaml": b"{}", "materialized_inputs.jsonl": bytes(4096)}, "is damaged, and its log has none. Name an"),
        ({"config.yaml": bytes(4096)}, r"config\.yaml cannot be read: .* Move it away: it is written anew"),
    ],
)
async def test_a_directory_without_a_run_says_what_to_do(tmp_path: Path, files: dict[str, bytes], said: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=said):
        await resumed_run(load_config([], folder=tmp_path), tmp_path)


async def test_damaged_inputs_of_a_run_whose_log_is_gone_are_told_and_stay(tmp_path: Path) -> None:
    path = tmp_path / "materialized_inputs.jsonl"
    path.write_bytes(b"one\n")
    config = load_config([], folder=tmp_path)
    await mend_inputs(config, tmp_path, "r1", lambda: iter([b"one\n"]))
    with pytest.raises(
        UsageError, match="began with 1 rollouts and would now have 2, and its log does not hold the run"
    ):
        await mend_inputs(config, tmp_path, "r1", lambda: iter([b"one\n", b"two\n"]))
    assert path.read_bytes() == b"one\n"


def test_what_was_kept_aside_stays_whatever_is_kept_later(tmp_path: Path) -> None:
    """After a second power cut it is the only copy of what the first one took. Nothing is kept twice."""
    path = tmp_path / "rollouts.jsonl"
    for content in (b"one\n", b"two\n", b"two\n", b"one\n", b"three\n"):
        path.write_bytes(content)
        keep_aside(Kept(path, ["r-00000-00"], [], 0), "it runs again")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir() if file != path} == {
        "rollouts.jsonl.before": b"one\n",
        "rollouts.jsonl.before.2": b"two\n",
        "rollouts.jsonl.before.3": b"three\n",
    }
