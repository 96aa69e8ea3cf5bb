"""A run that is interrupted while its model thinks: it ends when the calls in progress are answered, and loses none."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.workers import PATIENCE_S, PROJECT

ROLLOUTS = 6
CONFIG = """
launch: {drain_s: 3600}
log: {ack_wait_s: 2.0}
policy: {models: {noting: {notes: notes, latency: {mean_s: 3.0}, pool: {concurrency: 2}}}}
stage: {resources: {stage: {}}}
puppet: {agents: {puppet: {model: policy, resources: stage}}}
"""


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    options = ["main.yaml", "--input", "tasks.jsonl", "--output", "out", *arguments]
    command = [sys.executable, "-P", "-m", "orchestrator", "run", *options]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_with_the_calls_in_progress_and_none_is_paid_for_twice(
    tmp_path: Path, number: signal.Signals
) -> None:
    """B12, E5: most rollouts wait for replies that do not come before the run ends; nobody waits for them."""
    (tmp_path / "components").symlink_to(PROJECT / "components")
    (tmp_path / "main.yaml").write_text(CONFIG)
    plan = [["model"], ["add", 1], ["model"]]
    task = {"responses_create_params": {"input": "Go."}, "plan": plan, "expected": 1}
    (tmp_path / "tasks.jsonl").write_text(ROLLOUTS * (json.dumps(task) + "\n"))

    def asked() -> list[str]:
        notes = tmp_path / "notes"
        return notes.read_text().split() if notes.exists() else []

    process = start(tmp_path)
    until(lambda: len(asked()) >= 2)
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (130, "")
    assert len(asked()) == 2
    process = start(tmp_path, "policy.models.noting.latency.mean_s=0.0", "--resume")
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, out + err
    results = (tmp_path / "out" / "rollouts.jsonl").read_text().splitlines()
    assert [json.loads(line)["reward"] for line in results] == [1.0] * ROLLOUTS
    assert len(asked()) == len(set(asked())) == 2 * ROLLOUTS
