"""Forks of a real run: `jetgym` with real workers, then `replay fork` as a user types it."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bus import Bus, LogConfig
from bus.run_folder import live
from tests.e2e.runs import descendants, runs, until
from tests.e2e.test_replay import DEADLINE_S, PROJECT, lines, replay, run


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with one finished run of each agent, on a server of the run's own."""
    folder = tmp_path_factory.mktemp("forks") / "project"
    shutil.copytree(PROJECT, folder)
    run(folder, "orchestrator", "run", "config.yaml", "--input", "tasks.jsonl")
    return folder


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A project whose deployment stays up, with one finished run, and its URL."""
    folder = tmp_path_factory.mktemp("deployed") / "project"
    shutil.copytree(PROJECT, folder)
    command = [sys.executable, "-P", "-m", "orchestrator", "up", "config.yaml", "--output", "deployment"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as up:
        until = time.monotonic() + DEADLINE_S
        while "url" not in (facts := live(folder / "deployment") or {}):
            assert time.monotonic() < until
            assert up.poll() is None
            time.sleep(0.05)
        run(folder, "orchestrator", "run", "--url", facts["url"], "--input", "tasks.jsonl")
        yield folder, facts["url"]
        up.send_signal(signal.SIGINT)


def rollout_of(folder: Path, agent: str, *where: str) -> str:
    found = lines(replay(folder, "list", "--agent", agent, "--json", *where))
    return next(str(row["rollout_id"]) for row in found if not row["rollout_id"].startswith("f"))


def said(folder: Path, rollout: str, *where: str) -> Any:
    """What was asked and answered in a rollout, and what it came to, without what says who and when."""
    document = json.loads(replay(folder, "show", rollout, "--json", *where))
    for call in document["calls"]:
        if call["what"] == "agent":
            call["request"].pop("run_id")
    calls = [
        (call["key"], call["what"], call["instance"], call["request"], call["reply"]) for call in document["calls"]
    ]
    return sorted(calls, key=lambda call: call[0]), document["outcome"], document["reward"], document["response"]


async def everything(url: str) -> dict[int, tuple[str, bytes]]:
    async with await Bus.connect(url, LogConfig(), name="test/fork", writer="test") as bus:
        return {recorded.seq: (recorded.event.rolloutid, recorded.raw) async for recorded in bus.scan()}


async def test_r1_a_fork_writes_under_its_new_id_only_and_names_its_parent(deployed: tuple[Path, str]) -> None:
    """R1, on a deployment that is up."""
    folder, url = deployed
    parent = rollout_of(folder, "solver", "--url", url)
    before = await everything(url)
    (fork,) = lines(replay(folder, "fork", parent, "--at", "turn:2", "--url", url, "--json"))
    after = await everything(url)
    assert {seq: after[seq] for seq in before} == before
    assert {rollout for seq, (rollout, _) in after.items() if seq not in before} == {fork["rollout_id"]}
    assert (fork["parent"], fork["reward"], fork["outcome"]) == (parent, 1, "completed")
    story = replay(folder, "show", fork["rollout_id"], "--url", url)
    assert f"of {parent}, before its event" in story
    assert "rollout 0 of its parent's group" in story
    assert "went on from here" in story
    assert "adopted" not in story, "its first worker takes it over from nobody"
    (row,) = lines(replay(folder, "list", f"rollout:{fork['rollout_id']}", "--url", url, "--json"))
    assert row["adoptions"] == 0


@pytest.mark.parametrize("agent", ["solver", "delegating", "impatient"])
def test_r2_a_fork_at_the_end_is_the_identical_trajectory(deployed: tuple[Path, str], agent: str) -> None:
    """R2."""
    folder, url = deployed
    parent = rollout_of(folder, agent, "--url", url)
    (fork,) = lines(replay(folder, "fork", parent, "--at", "end", "--url", url, "--json"))
    assert said(folder, fork["rollout_id"], "--url", url) == said(folder, parent, "--url", url)
    assert "1 same" in replay(folder, "verify", "--run", fork["run_id"], "--url", url)


def test_r2_a_fork_at_0_is_a_full_rerun(deployed: tuple[Path, str]) -> None:
    """R2: nothing is shared, and nothing was adopted."""
    folder, url = deployed
    parent = rollout_of(folder, "solver", "--url", url)
    (fork,) = lines(replay(folder, "fork", parent, "--at", "0", "--url", url, "--json"))
    document = json.loads(replay(folder, "show", fork["rollout_id"], "--url", url, "--json"))
    assert (fork["shared"], document["adoptions"], fork["reward"]) == (0, [], 1)
    assert all(call["requested_seq"] > 0 for call in document["calls"])
    assert said(folder, fork["rollout_id"], "--url", url)[1:3] == said(folder, parent, "--url", url)[1:3]


def test_branches_of_one_state_share_it_and_rebuild_the_session(project: Path) -> None:
    """In a deployment of their own: the counter has the shared calls in it, else the reward would not be 1."""
    parent = rollout_of(project, "solver")
    raw = replay(project, "show", parent, "--raw")
    forks = lines(replay(project, "fork", parent, "--at", "turn:3", "-n", "3", "--json"))
    assert [(fork["reward"], fork["shared"]) for fork in forks] == [(1, 6)] * 3
    assert len({fork["rollout_id"] for fork in forks}) == 3
    assert replay(project, "show", parent, "--raw") == raw
    run_id = forks[0]["run_id"]
    assert replay(project, "verify", "--run", run_id) == "3 rollouts: 3 same\n"
    written = lines((project / "results" / run_id / "rollouts.jsonl").read_text())
    assert [line["reward"] for line in written] == [1, 1, 1]
    listed = {run["run_id"]: run for run in lines(replay(project, "list", "--runs", "--json"))}[run_id]
    assert (listed["mean_reward"], listed["completed"], listed["state"]) == (1, 3, "ended")
    assert listed["wall_s"] > 0
    document = json.loads(replay(project, "show", forks[1]["rollout_id"], "--json"))
    live_calls = [call for call in document["calls"] if call["worker"] not in raw]
    assert [call["what"] for call in live_calls] == ["model", "verify"]
    again = lines(replay(project, "fork", forks[1]["rollout_id"], "--at", "end", "--json"))
    assert again[0]["parent"] == forks[1]["rollout_id"]
    assert said(project, again[0]["rollout_id"]) == said(project, forks[1]["rollout_id"])


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_fork_that_is_ended_leaves_no_deployment_behind(project: Path, number: int) -> None:
    """Its own has a server and workers: whoever ends the command, or kills it, ends them too."""
    (first,) = project.glob("results/r*")
    parent = rollout_of(project, "solver", "--run", first.name)
    before = set(project.glob("results/f*"))
    command = [sys.executable, "-P", "-m", "replay", "fork", parent, "--at", "0", "-n", "500"]
    with subprocess.Popen(command, cwd=project, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as forking:
        until(lambda: any(live(folder) for folder in set(project.glob("results/f*")) - before))
        below = descendants(forking.pid)
        forking.send_signal(number)
        forking.wait(DEADLINE_S)
    assert forking.returncode == (130 if number == signal.SIGTERM else -number)
    assert len(below) > 3
    until(lambda: not any(map(runs, below)))


def test_r7_the_exit_code_says_whether_the_reward_is_the_parents(deployed: tuple[Path, str]) -> None:
    """R7: 0 the same, 1 another, 2 not made."""
    folder, url = deployed
    parent = rollout_of(folder, "solver", "--url", url)
    replay(folder, "fork", parent, "--at", "turn:3", "--url", url)
    (fork,) = lines(
        replay(folder, "fork", parent, "--at", "m_4", "--edit", "reward=0.25", "--url", url, "--json", code=1)
    )
    assert (fork["reward"], fork["parent_reward"]) == (0.25, 1)
    assert "turns 1 to 3" in replay(folder, "fork", parent, "--at", "turn:9", "--url", url, code=2)
    for agent in ("x", "policy"):
        refused = replay(folder, "fork", parent, "--at", "0", "--agent", agent, "--url", url, code=2)
        assert "what is deployed has no such agent" in refused
    refused = replay(folder, "fork", parent, "--at", "0", "--model", "solver", "--url", url, code=2)
    assert "what is deployed has no model 'solver'" in refused


def test_r7_whatif_tells_the_next_call_and_whether_it_is_the_recorded_one(deployed: tuple[Path, str]) -> None:
    """R7, R1: and writes nothing."""
    folder, url = deployed
    parent = rollout_of(folder, "solver", "--url", url)
    same = json.loads(replay(folder, "whatif", parent, "--at", "turn:2", "--url", url, "--json"))
    assert [(call["key"], call["compared"]) for call in same["calls"]] == [("m_2", "same")]
    told = replay(folder, "whatif", parent, "--at", "m3_0", "--edit", "output=9", "--url", url, code=1)
    assert "[-8-]{+9+}" in told
    assert "reward 0.5" in replay(folder, "whatif", parent, "--at", "m_4", "--edit", "reward=0.5", "--url", url, code=1)
    replay(folder, "whatif", parent, "--at", "nowhere", "--url", url, code=2)


def test_an_edited_text_changes_what_follows(deployed: tuple[Path, str]) -> None:
    folder, url = deployed
    parent = rollout_of(folder, "solver", "--url", url)
    command = ["fork", parent, "--at", "turn:1", "--edit", "text=No.", "--url", url, "--json"]
    (fork,) = lines(replay(folder, *command, code=1))
    document = json.loads(replay(folder, "show", fork["rollout_id"], "--url", url, "--json"))
    assert (fork["reward"], fork["outcome"]) == (0, "completed")
    assert [call["what"] for call in document["calls"]] == ["session", "model", "verify"]


def test_a_fork_of_an_import_asks_for_the_config_of_a_deployment_and_leaves_no_run(tmp_path: Path) -> None:
    """Else an empty run would be the last one."""
    replay(tmp_path, "import", str(PROJECT.parent / "solver.jsonl"), "--output", "results/imported")
    refused = replay(tmp_path, "fork", "last", "--run", "results/imported", "--at", "turn:1", code=2)
    assert "has no agents, as that of an import: give --config CONFIG" in " ".join(refused.split())
    assert [folder.name for folder in (tmp_path / "results").iterdir()] == ["imported"]
