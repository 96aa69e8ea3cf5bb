"""The whole example, as `make learn` runs it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from examples.grpo_cpu.learn import main

PATIENCE_S = 900


def test_a_folder_that_cannot_be_a_new_training_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not after the warm-up, and not by going on in the log of a training that is over."""
    (tmp_path / "earlier").mkdir()
    (tmp_path / "earlier" / "curves.json").write_text("{}")
    (tmp_path / "new-sync").write_text("")
    for name, told in (
        ("earlier", "earlier is there already: name a new folder"),
        ("new", "new-sync is there already: name a new folder"),
        ("a.b", "run 'a.b' may only hold"),
        ("a" * 60, "has 65 characters, the limit is 64"),
    ):
        monkeypatch.setattr(sys, "argv", ["learn", "--output", str(tmp_path / name)])
        with pytest.raises(SystemExit, match="2"):
            main()
        assert told in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_S + 60)
def test_two_steps_end_to_end_record_every_log_probability_exactly(tmp_path: Path) -> None:
    """Engine, workers, log, trainer and learner; then everything is recomputed from the stored weights."""
    command = [sys.executable, "-m", "examples.grpo_cpu.learn", "--json", "--steps", "2"]
    command += ["--output", str(tmp_path / "a")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    figures = json.loads(line)
    assert figures["tokens"] > 2_000
    assert figures["max_logprob_error"] < 1e-4
    assert figures["max_lag"] <= 1
    assert figures["async_speedup"] > 0
    assert all(0 < figures[name] <= 1 for name in ("engine_busy", "trainer_busy", "sync_engine_busy"))
    assert (tmp_path / "a" / "curves.png").is_file()
