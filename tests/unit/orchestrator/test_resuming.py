"""What cannot be gone on with is told with the next step, before anything starts."""

from pathlib import Path

import pytest

from orchestrator.commands.resuming import mend_inputs, resumed_run
from orchestrator.config import load_config
from orchestrator.errors import UsageError


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
