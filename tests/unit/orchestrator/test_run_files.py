"""Who holds the directory of a run, and what is left of it."""

from pathlib import Path

import pytest

from bus.run_folder import live
from orchestrator.errors import UsageError
from orchestrator.run_files import RunFiles


def test_a_directory_is_held_by_one_process_at_a_time(tmp_path: Path) -> None:
    with RunFiles(tmp_path) as files:
        files.live({"url": "nats://127.0.0.1:4222", "pid": 17})
        assert live(tmp_path) == {"url": "nats://127.0.0.1:4222", "pid": 17}
        with pytest.raises(UsageError, match=r"is in use by another jetgym \(process 17, nats://127\.0\.0\.1:4222\)"):
            RunFiles(tmp_path).__enter__()
    with RunFiles(tmp_path):
        assert live(tmp_path) == {}


def test_a_start_that_wrote_nothing_leaves_no_directory(tmp_path: Path) -> None:
    with RunFiles(tmp_path / "results" / "r1"):
        pass
    assert not (tmp_path / "results" / "r1").exists()


def test_a_directory_that_holds_something_or_was_there_before_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with RunFiles(tmp_path / "mine"), RunFiles(tmp_path / "r1") as files:
        (files.folder / "log").mkdir()
    assert {path.name for path in tmp_path.rglob("*")} == {"mine", "r1", "log"}
