"""Replay of a real run: `jetgym run` with real workers, then `replay` as a user types it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[1] / "golden" / "project"
DEADLINE_S = 120.0


def run(folder: Path, module: str, *arguments: str, code: int = 0) -> str:
    """Runs a command to its end; returns its output, or with code 2 its errors."""
    command = [sys.executable, "-P", "-m", module, *arguments]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    assert ran.returncode == code, ran.stdout + ran.stderr
    assert "Traceback (most recent call last)" not in ran.stderr
    return ran.stderr if code == 2 else ran.stdout


def replay(folder: Path, *arguments: str, code: int = 0) -> str:
    return run(folder, "replay", *arguments, code=code)


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with one finished run of four agents, two rollouts each."""
    folder = tmp_path_factory.mktemp("project") / "project"
    shutil.copytree(PROJECT, folder)
    run(folder, "orchestrator", "run", "config.yaml", "--input", "tasks.jsonl", "--repeats", "2")
    return folder


@pytest.fixture
def project(recorded: Path, tmp_path: Path) -> Path:
    """A copy of it to change."""
    return Path(shutil.copytree(recorded, tmp_path / "project"))


def test_a_finished_run_is_listed(recorded: Path) -> None:
    rows = lines(replay(recorded, "list", "--json"))
    assert sorted((row["agent"], row["outcome"]) for row in rows) == [
        ("clumsy", "failed"),
        ("clumsy", "failed"),
        ("delegating", "completed"),
        ("delegating", "completed"),
        ("impatient", "completed"),
        ("impatient", "completed"),
        ("solver", "completed"),
        ("solver", "completed"),
    ]
    assert {row["environment"] for row in rows if row["agent"] == "solver"} == {"counter"}
    table = replay(recorded, "list", "--failed")
    assert "2 rollouts, 2 failed" in table
    (found,) = lines(replay(recorded, "list", "--runs", "--json"))
    assert (found["state"], found["completed"], found["failed"]) == ("ended", 6, 2)


def test_a_run_that_is_stopped_says_how_far_it_came_until_it_is_resumed(tmp_path: Path) -> None:
    """200 rollouts of an agent that takes its time, two at a time: it is stopped long before their end."""
    project = Path(shutil.copytree(PROJECT, tmp_path / "project"))
    tasks = project / "tasks.jsonl"
    tasks.write_text("".join(line for line in tasks.read_text().splitlines(keepends=True) if "impatient" in line))
    command = ["config.yaml", "--input", "tasks.jsonl", "--repeats", "200", "--output", "results/x", "--concurrency"]
    rollouts = project / "results" / "x" / "rollouts.jsonl"
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "orchestrator", "run", *command, "2"],
        cwd=project,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        until = time.monotonic() + DEADLINE_S
        while not rollouts.exists() or not rollouts.read_bytes():
            assert time.monotonic() < until
            time.sleep(0.01)
        (told,) = lines(replay(project, "list", "--runs", "--json"))
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=DEADLINE_S)
    assert (running.returncode, told["state"], told["asked"]) == (130, "running", 200)
    (stopped,) = lines(replay(project, "list", "--runs", "--json"))
    ended = stopped["completed"] + stopped["failed"]
    assert (stopped["state"], stopped["asked"]) == ("interrupted", 200)
    assert 0 < told["completed"] <= ended < 200
    assert f"interrupted {ended}/200" in replay(project, "list", "--runs")
    run(project, "orchestrator", "run", *command, "200", "--resume")
    (resumed,) = lines(replay(project, "list", "--runs", "--json"))
    assert (resumed["state"], resumed["completed"] + resumed["failed"]) == ("ended", 200)


def test_rewards_are_those_of_the_result_file(recorded: Path) -> None:
    (folder,) = (recorded / "results").iterdir()
    written = {line["rollout_id"]: line["reward"] for line in lines((folder / "rollouts.jsonl").read_text())}
    listed = {row["rollout_id"]: row["reward"] for row in lines(replay(recorded, "list", "--json"))}
    assert {rollout: reward for rollout, reward in listed.items() if reward is not None} == written


def test_a_rollout_is_shown_to_its_end(recorded: Path) -> None:
    (rollout, *_) = [row["rollout_id"] for row in lines(replay(recorded, "list", "--agent", "delegating", "--json"))]
    story = replay(recorded, "show", rollout)
    assert story.startswith(rollout)
    assert "completed  reward 1" in story.splitlines()[-1]
    document = json.loads(replay(recorded, "show", rollout, "--json"))
    assert document["agent_workers"][0]["implementation"] == "delegating"
    assert any(call["key"].startswith("m_0--") for call in document["calls"])


def test_todays_code_does_what_the_run_did(recorded: Path) -> None:
    verdicts = lines(replay(recorded, "verify", "--run", "last", "--json"))
    assert [(verdict["verdict"], verdict["code"]) for verdict in verdicts] == [("same", "same")] * 8
    assert replay(recorded, "verify", "--run", "last") == "8 rollouts: 8 same\n"


def test_changed_code_departs_at_the_line_that_changed(project: Path) -> None:
    app = project / "components" / "agents" / "clumsy" / "app.py"
    app.write_text(app.read_text().replace("self.model.responses(request)", "self.model.responses(self.hot(request))"))
    app.write_text(app.read_text() + HOT)
    ids = [row["rollout_id"] for row in lines(replay(project, "list", "--agent", "clumsy", "--json"))]
    said = replay(project, "verify", ids[0], code=1)
    line = next(n for n, text in enumerate(app.read_text().splitlines(), start=1) if "self.hot(request)" in text)
    assert f"components/agents/clumsy/app.py:{line}\n" in said
    assert "data.request.temperature" in said
    assert "The source of clumsy has changed since it was recorded." in said
    assert "8 rollouts: 6 same, 2 depart" in replay(project, "verify", "--run", "last", code=1)


HOT = """
    def hot(self, request: ResponseCreateParams) -> ResponseCreateParams:
        return request.model_copy(update={"temperature": 2.0})
"""


def test_code_that_is_gone_could_not_run(project: Path) -> None:
    shutil.rmtree(project / "components" / "agents" / "clumsy")
    rollout = lines(replay(project, "list", "--agent", "clumsy", "--json"))[0]["rollout_id"]
    command = [sys.executable, "-P", "-m", "replay", "verify", rollout, "--json"]
    ran = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    (verdict,) = lines(ran.stdout)
    assert (ran.returncode, verdict["verdict"], verdict["code"]) == (2, "could not run", "unknown")
    assert verdict["reason"].startswith("the code of agent 'clumsy' is not here")


def test_verify_leaves_the_store_as_it_was(project: Path) -> None:
    """R1: what the server keeps of the stream's messages is byte for byte the same."""
    (run_folder,) = (project / "results").iterdir()

    def messages() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in (run_folder / "log" / "store").rglob("*.blk")}

    before = messages()
    replay(project, "verify", "--run", "last")
    assert before
    assert messages() == before


@pytest.mark.parametrize("command", ["replay list", "replay list --json", "orchestrator datasets"])
def test_a_reader_that_has_seen_enough_is_no_error(recorded: Path, command: str) -> None:
    """It ends as programs do that know nothing of it: with 141, and without a word."""
    read, write = os.pipe()
    os.close(read)
    try:
        words = [sys.executable, "-P", "-m", *command.split()]
        ran = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, check=False, cwd=recorded, timeout=DEADLINE_S)
    finally:
        os.close(write)
    assert (ran.returncode, ran.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("command", ["replay list", "replay list --json", "replay show last", "orchestrator datasets"])
def test_output_that_finds_no_room_is_one_line_and_code_2(recorded: Path, command: str) -> None:
    """R7: 0 would say that all was told."""
    words = [sys.executable, "-P", "-m", *command.split()]
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, check=False, cwd=recorded, timeout=DEADLINE_S)
    assert (ran.returncode, ran.stderr) == (2, b"error: standard output cannot be written: No space left on device\n")


def of_clumsy(folder: Path) -> str:
    return str(lines(replay(folder, "list", "--json", "--agent", "clumsy"))[0]["rollout_id"])


def test_r7_whatif_of_a_rollout_that_fails_as_it_did_is_as_recorded(project: Path) -> None:
    failed = of_clumsy(project)
    assert "fails as recorded: agent_error: IndexError" in replay(project, "whatif", failed, "--at", "end")
    code = project / "components" / "agents" / "clumsy" / "app.py"
    code.write_text(code.read_text().replace("self.rollout.sessionless[len(reply.output)]", 'raise ValueError("no")'))
    assert "fails: agent_error: ValueError: no" in replay(project, "whatif", failed, "--at", "end", code=1)


def test_r7_code_that_ends_its_process_is_a_verdict_and_verify_ends_with_2(project: Path) -> None:
    code = project / "components" / "agents" / "clumsy" / "app.py"
    code.write_text(
        code.read_text().replace("self.rollout.sessionless[len(reply.output)]", '__import__("os")._exit(0)')
    )
    replay(project, "verify", "--run", "last", "--jsonl", "verdicts.jsonl", code=2)
    verdicts = lines((project / "verdicts.jsonl").read_text())
    lost = [verdict["reason"] for verdict in verdicts if verdict["verdict"] == "could not run"]
    assert len(lost) == 2
    assert all(f"its code ended its process with exit code 0 at {code}:" in reason for reason in lost)
    assert {verdict["verdict"] for verdict in verdicts} == {"same", "could not run"}
