"""Forks that go on in the deployment of a `jetgym run`, which goes on without them."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bus.run_folder import FORKS, live
from tests.e2e.test_replay import DEADLINE_S, lines, replay, run
from tests.e2e.workers import PROJECT

CONFIG = """
policy:
  models:
    noting: {notes: notes}
stage:
  resources:
    stage: {}
puppet:
  agents:
    puppet: {model: policy, resources: stage}
"""
QUICK: dict[str, Any] = {"responses_create_params": {"input": "Go."}, "plan": [["model"]], "expected": 0}
STAYS = {**QUICK, "plan": [["model"], ["tool", "add_slowly", {"count": 0, "seconds": 600}]]}


class Forked(NamedTuple):
    """What there is after a run was forked twice and ended before the second fork did."""

    folder: Path
    run_id: str
    parent: str
    fork: dict[str, Any]
    """The one that ended."""
    refused: tuple[int, str]
    """How the command of the other one ended, and what it said last."""

    def said(self, *arguments: str, code: int = 0) -> str:
        """What a command of `replay` says."""
        return replay(self.folder, *arguments, code=code)

    def ids(self, *arguments: str) -> list[str]:
        """The rollouts that are listed."""
        return [row["rollout_id"] for row in lines(self.said("list", "--json", *arguments))]


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


@contextmanager
def begun(folder: Path, module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command that goes on; it is ended with the block."""
    command = [sys.executable, "-P", "-m", module, *arguments]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=DEADLINE_S)


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Forked:
    """And one more run was made since."""
    folder = Path(shutil.copytree(PROJECT, tmp_path_factory.mktemp("forked") / "project"))
    (folder / "small.yaml").write_text(CONFIG)
    (folder / "both.jsonl").write_text(json.dumps(QUICK) + "\n" + json.dumps(STAYS) + "\n")
    (folder / "quick.jsonl").write_text(json.dumps(QUICK) + "\n")
    options = ["small.yaml", "--agent", "puppet", "--input"]
    results = folder / "results"
    with begun(folder, "orchestrator", "run", *options, "both.jsonl") as running:
        until(lambda: any("url" in (live(path.parent) or {}) for path in results.glob("*/deployment.json")))
        (home,) = results.iterdir()
        until(lambda: (home / "rollouts.jsonl").exists() and (home / "rollouts.jsonl").read_text().endswith("\n"))
        parent = f"{home.name}-00000-00"
        (fork,) = lines(replay(folder, "fork", parent, "--at", "end", "--json"))
        assert len(lines((home / FORKS).read_text())) == 2
        with begun(folder, "replay", "fork", f"{home.name}-00001-00", "--at", "0") as waiting:
            until(lambda: len(lines((home / FORKS).read_text())) == 3)
            running.send_signal(signal.SIGINT)
            _, said = waiting.communicate(timeout=DEADLINE_S)
        running.communicate(timeout=DEADLINE_S)
    run(folder, "orchestrator", "run", *options, "quick.jsonl")
    return Forked(folder, home.name, parent, fork, (waiting.returncode, said))


def test_forks_in_the_log_of_a_run_are_runs_of_their_own(forked: Forked) -> None:
    fork = forked.fork
    assert forked.ids("--run", fork["run_id"]) == [fork["rollout_id"]]
    assert forked.ids("--run", forked.run_id) == [forked.parent, f"{forked.run_id}-00001-00"]
    stats = json.loads(forked.said("stats", forked.run_id, "--quick", "--json"))
    assert (stats["run_id"], stats["rollouts"]) == (forked.run_id, 2)
    assert forked.said("verify", "--run", fork["run_id"]) == "1 rollout: 1 same\n"


def test_forks_in_the_log_of_a_run_are_listed_with_what_they_came_to(forked: Forked) -> None:
    """Those that did not end with what is known of them."""
    runs = {row["run_id"]: row for row in lines(forked.said("list", "--runs", "--json"))}
    row = runs[forked.fork["run_id"]]
    assert (row["state"], row["asked"], row["completed"], row["mean_reward"]) == ("ended", 1, 1, 1)
    assert row["where"] == f"results/{forked.run_id}"
    assert sorted(row["state"] for row in runs.values()) == ["ended", "ended", "interrupted", "unfinished"]
    assert (runs[forked.run_id]["asked"], runs[forked.run_id]["completed"]) == (2, 1)


def test_a_fork_in_the_log_of_a_run_is_found_by_its_id_when_another_run_is_newer(forked: Forked) -> None:
    rollout = forked.fork["rollout_id"]
    for name in (rollout, forked.fork["run_id"]):
        assert json.loads(forked.said("show", name, "--json"))["rollout_id"] == rollout
    assert forked.parent in forked.said("diff", rollout)
    verdicts = lines(forked.said("verify", rollout, forked.parent, "--json"))
    assert [verdict["rollout_id"] for verdict in verdicts] == [rollout, forked.parent]


def test_a_fork_whose_deployment_ends_before_it_says_so_and_what_to_do(forked: Forked) -> None:
    code, said = forked.refused
    assert code == 2, said
    last = " ".join(said.split("error: ")[-1].split())
    assert last.startswith(f"the deployment in results/{forked.run_id} ended before the forks of f"), said
    assert last.endswith(
        f"did: fork again with --run results/{forked.run_id}, and a deployment of their own is started for them"
    )
