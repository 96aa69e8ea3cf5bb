"""`jetgym run` as a user types it, while the server, everything, or the command itself is killed."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from bus import Bus, LogConfig
from bus.server import find_binary
from tests.cluster import running_cluster
from tests.e2e.runs import DEADLINE_S, ROLLOUTS, TURNS, Run, answered, descendants, jetgym, runs, until
from tests.e2e.workers import PROJECT


def test_a_run_goes_on_whenever_its_server_is_killed(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    """B10, E7: while the workers start, and at four points of the run; no call is made twice."""
    run = Run(tmp_path)
    process = run.start()
    until((run.out / "logs").exists)
    killed = 0
    for calls in (0, 1, 20, 40, 60):
        until(lambda: run.server() not in (0, killed) and len(run.calls()) >= calls)  # noqa: B023 - at once
        killed = run.server()
        os.kill(killed, signal.SIGKILL)
    said = run.finish(process)
    assert said.count("nats-server was killed by SIGKILL; starting it again in") == 5
    assert "nats-server is back after" in said
    assert run.results() == undisturbed
    assert len(undisturbed) == ROLLOUTS
    assert set(Counter(run.calls()).values()) == {1}
    assert len(run.calls()) == TURNS * ROLLOUTS
    run.verified()


def test_a_run_whose_server_does_not_come_back_says_so_and_can_go_on(
    tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    """It is given up after so many starts in a row that failed; what was done is not done again."""
    binary = tmp_path / "nats-server"
    binary.write_text(f'#!/bin/sh\nexec {find_binary(None)} "$@"\n')
    binary.chmod(0o755)
    run = Run(tmp_path, f"++server.binary={binary}", "++launch.failed_starts=2", "++launch.drain_s=1")
    process = run.start()
    until(lambda: len(run.calls()) >= 20)
    binary.write_text("#!/bin/sh\nexit 3\n")
    os.kill(run.server(), signal.SIGKILL)
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 2, said
    assert "error: the server of the log did not come back, 2 times in a row: nats-server ended at once" in said
    assert f"stopped; what is finished is in {run.out}. To go on:\n" in said
    again = Run(tmp_path)
    again.finish(again.start("--resume"))
    assert again.results() == undisturbed
    again.verified()


async def test_a_run_on_a_cluster_goes_on_when_the_leader_is_killed(
    tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    """B10, `log.durability: replicated`: three servers, the one that leads the log is killed in the middle of a run."""
    run = Run(tmp_path, "++log.durability=replicated")
    async with running_cluster(tmp_path) as cluster:
        up = jetgym("up", *run.config, "--url", cluster.url, "--output", str(tmp_path / "live"))
        assert up.stdout is not None
        assert any(line.startswith("ready at ") for line in up.stdout)
        process = run.start("--url", cluster.url)
        until(lambda: len(run.calls()) >= TURNS * ROLLOUTS // 3)
        config = LogConfig(durability="replicated")
        async with await Bus.connect(cluster.url, config, name="test/e2e/w", writer="w") as bus:
            await cluster.kill(await cluster.leader(bus))
        run.finish(process)
        assert run.results() == undisturbed
        assert set(Counter(run.calls()).values()) == {1}
        name = json.loads((run.out / "rollouts.jsonl").read_text().partition("\n")[0])["run_id"]
        run.verified("--url", cluster.url, "--run", name)
        up.send_signal(signal.SIGTERM)
        said, _ = up.communicate(timeout=DEADLINE_S)
        assert up.returncode == 0, said


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
@pytest.mark.parametrize("what", ["the command", "everything"])
async def test_a_run_that_was_killed_leaves_nothing_running_and_can_go_on(
    tmp_path: Path, undisturbed: dict[str, Any], what: str
) -> None:
    """E5, E7: the command alone, or all processes at once as a reboot does; no call that has a reply is made again.

    Killed alone, it takes with it the server, the workers, and what they started.
    """
    run = Run(tmp_path, "++policy.models.noting.engine=true")
    process = run.start()
    until(lambda: len(run.calls()) >= TURNS * ROLLOUTS // 3)
    started = descendants(process.pid)
    assert len(started) == 7 + 2, "the workers, the server, and the engine of the model"
    victims = [process.pid, *(started if what == "everything" else ())]
    for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first, so that none sees another's death
        for pid in victims:
            os.kill(pid, number)
    process.communicate(timeout=DEADLINE_S)
    until(lambda: not any(map(runs, started)))
    before = await answered(run)
    made = Counter(run.calls())
    assert 0 < len(before) < TURNS * ROLLOUTS
    assert set(made.values()) == {1}
    run.finish(run.start("--resume"))
    assert run.results() == undisturbed
    twice = {call for call, count in Counter(run.calls()).items() if count > 1}
    assert not twice & before
    assert len(set(run.calls())) == TURNS * ROLLOUTS
    run.verified()


@pytest.mark.parametrize("rebooted", [True, False])
async def test_a_run_goes_on_when_a_power_cut_took_the_end_of_its_log(
    tmp_path: Path, undisturbed: dict[str, Any], rebooted: bool
) -> None:
    """B6, E5, E7: results are on the disk, and so is that requests are done, whose replies and ends are not any more.

    What is in the log is not done again. A disk, or a copy that is put back, may lose the same without a start of the
    machine.
    """
    run = Run(tmp_path)
    results = run.out / "rollouts.jsonl"
    cut_power(run, lost=0, rebooted=rebooted)
    before, made = await answered(run), Counter(run.calls())
    said = " ".join(run.finish(run.start("--resume")).split())
    told = "the machine was started anew since: all that workers were asked for is looked at again" in said
    assert told == rebooted
    assert f"of {results}: these rollouts run again" in said
    assert run.results() == undisturbed
    assert not {call for call, count in (Counter(run.calls()) - made).items() if count and call in before}
    run.verified()


@pytest.mark.parametrize("rebuilt", [False, True])
def test_results_that_only_the_file_has_after_a_power_cut_are_kept_aside(
    tmp_path: Path, undisturbed: dict[str, Any], rebuilt: bool
) -> None:
    """Also where their rollouts end again at once, and where `rebuild` comes first. It is told once."""
    run = Run(tmp_path)
    results = run.out / "rollouts.jsonl"
    lines = cut_power(run, lost=-1)
    said = ""
    if rebuilt:
        said += run.finish(jetgym("rebuild", str(run.out)))
        assert results.read_bytes().splitlines() == lines[:-1]
    said += run.finish(run.start("--resume"))
    assert results.with_name("rollouts.jsonl.before").read_bytes().splitlines()[: len(lines)] == lines
    assert said.count(f"as in a power cut (log.durability), and with it 1 result of {results}: ") == 1
    assert run.results() == undisturbed


def test_a_run_whose_log_a_power_cut_took_before_its_first_result_begins_anew(
    tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    """Nothing of the log had reached the disk; with a result in the files it would be refused."""
    run = Run(tmp_path)
    process = run.start()
    until(run.calls)
    kill(process)
    assert not (run.out / "rollouts.jsonl").read_bytes()
    for pattern in ("*.blk", "index.db", "o.dat"):
        for path in (run.out / "log").rglob(pattern):
            os.truncate(path, 0)
    (run.out / "log" / "boot").write_text("another start of the machine")
    said = run.finish(run.start("--resume"))
    assert "as after a power cut soon after it began (log.durability), and no result is lost: it begins anew" in said
    assert run.results() == undisturbed
    run.verified()


def cut_power(run: Run, lost: int, *, rebooted: bool = True) -> list[bytes]:
    """Kills all of a run, and takes the log from the end of one of its results on; gives the result lines."""
    process = run.start()
    results = run.out / "rollouts.jsonl"
    until(lambda: results.exists() and results.read_bytes().count(b"\n") >= ROLLOUTS // 3)
    kill(process)
    (block,) = (run.out / "log").rglob("jetgym_0/msgs/*.blk")
    lines = results.read_bytes().rpartition(b"\n")[0].splitlines()
    line = json.loads(lines[lost])
    os.truncate(block, block.read_bytes().rindex(f".rollout.ended.{line['run_id']}.{line['rollout_id']}".encode()))
    if rebooted:
        (run.out / "log" / "boot").write_text("another start of the machine")
    return lines


def kill(process: Popen[str]) -> None:
    """All of a run at once, as a power cut does."""
    victims = [process.pid, *descendants(process.pid)]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in victims:
            os.kill(pid, number)
    process.communicate(timeout=DEADLINE_S)
    until(lambda: not any(map(runs, victims)))


def test_a_run_without_room_on_its_disk_does_not_begin(tmp_path: Path) -> None:
    """B9: neither its server nor a worker of it could write, and each would say so in its own way."""
    run = Run(tmp_path)
    command = [sys.executable, "-P", "-m", "orchestrator", "run", *run.config, *run.tasks]
    limited = ["sh", "-c", 'ulimit -f 1000 && exec "$@"', "sh", *command]
    done = subprocess.run(limited, cwd=PROJECT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 2
    assert f"error: there is no room on the disk of {run.out} (File too large): make some, then say it" in done.stderr
    assert not run.out.exists(), "nothing is left of it"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such disk")
def test_a_run_without_room_for_its_results_says_so_and_can_go_on(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    """B9: exit code 1 would say that all has ended and nothing has a reward."""
    run = Run(tmp_path)
    results = run.out / "rollouts.jsonl"
    run.out.mkdir()
    results.symlink_to("/dev/full")
    process = run.start()
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 2, said
    assert f"error: {run.out}: No space left on device\n" in said
    assert f"stopped; what is finished is in {run.out}. To go on:\n" in said
    results.unlink()
    run.finish(run.start("--resume"))
    assert run.results() == undisturbed
    assert set(Counter(run.calls()).values()) == {1}
