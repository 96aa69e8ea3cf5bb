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


def failing(folder: Path, *written: str) -> None:
    """A start that writes these files and fails."""

    def start() -> None:
        for name in written:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
        raise RuntimeError

    with pytest.raises(RuntimeError), RunFiles(folder):
        start()


@pytest.mark.parametrize("said", [False, True])
def test_a_start_that_failed_leaves_what_workers_said_and_no_log(tmp_path: Path, said: bool) -> None:
    folder = tmp_path / "r1"
    failing(folder, "log/jetstream/x", "logs/policy.log" if said else "log/y")
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.log")] == ["r1/logs/policy.log"] * said
    assert not (folder / "log").exists()
    assert folder.exists() == said


@pytest.mark.parametrize("begun", ["materialized_inputs.jsonl", "config.yaml"])
def test_a_run_that_failed_once_it_had_begun_and_a_log_that_was_there_before_stay(tmp_path: Path, begun: str) -> None:
    failing(tmp_path / "r1", "log/x", begun)
    assert (tmp_path / "r1" / "log").exists()
    (tmp_path / "r1" / begun).unlink()
    failing(tmp_path / "r1")
    assert (tmp_path / "r1" / "log").exists()


def test_a_directory_that_holds_something_or_was_there_before_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with RunFiles(tmp_path / "mine"), RunFiles(tmp_path / "r1") as files:
        (files.folder / "log").mkdir()
    assert {path.name for path in tmp_path.rglob("*")} == {"mine", "r1", "log"}
