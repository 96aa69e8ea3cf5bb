"""Trainers as processes, on real workers: killed in the middle of a run and started again."""

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from bus import Bus, LogConfig
from bus.opening import log_of, open_log
from bus.run_folder import METRICS
from orchestrator.audit import audit
from tests.e2e.runs import DEADLINE_S, descendants, jetgym, runs, started, until
from tests.e2e.trainer_process import GROUPS, SIZE, STEP
from tests.e2e.workers import PROJECT

ROOT = Path(__file__).parents[2]
MODULE = "tests.e2e.trainer_process"


def trainer(out: Path, notes: Path, url: str | None) -> subprocess.Popen[str]:
    code = f"import sys, runpy; sys.path.insert(0, {str(ROOT)!r}); runpy.run_module({MODULE!r}, run_name='__main__')"
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", code, str(out), str(notes), *([url] if url else [])],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    started.append(process)
    return process


def steps(notes: Path, what: str) -> list[list[str]]:
    lines = notes.read_text().splitlines() if notes.exists() else []
    return [groups for verb, *groups in (line.split() for line in lines) if verb == what]


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
@pytest.mark.parametrize("way", ["connect", "launch"])
async def test_f2_a_trainer_that_is_killed_and_started_again_trains_on_everything_and_on_nothing_twice(
    tmp_path: Path, way: str
) -> None:
    """F2, F9: SIGKILL twice, with rollouts in flight, the second time in another step; then it runs to its end.

    What was trained on and not committed may come again; what was committed does not. Nothing is asked for twice.
    """
    out, notes, url = tmp_path / "out", tmp_path / "notes", None
    if way == "connect":
        up = jetgym("up", "main.yaml", f"policy.models.noting.notes={tmp_path / 'calls'}", "--output", str(out))
        assert up.stdout is not None
        url = next(m[1] for line in up.stdout if (m := re.match(r"ready at (\S+);", line)))
    for killed_after in (2, 5):
        process = trainer(out, notes, url)
        until(lambda: len(steps(notes, "committed")) >= killed_after or process.poll() is not None)  # noqa: B023
        assert process.poll() is None, process.communicate()
        below = descendants(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        said, _ = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == -signal.SIGKILL, said
        until(lambda: not any(map(runs, below)))  # noqa: B023
        if way == "launch":
            left = json.loads((out / METRICS).read_text())["run"]
            assert left["version"] >= killed_after - 1
            assert left["consumed"] >= left["version"] * STEP * SIZE
            assert sum(left["staleness"].values()) == left["consumed"]
    process = trainer(out, notes, url)
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, said
    trained = Counter(group for groups in steps(notes, "trained") for group in groups)
    assert len(trained) == GROUPS
    assert set(trained.values()) <= {1, 2, 3}
    done: set[str] = set()
    for verb, *groups in (line.split() for line in notes.read_text().splitlines()):
        assert not done & set(groups), "it came again though it was committed"
        done |= set(groups) if verb == "committed" else set()
    assert GROUPS - len(done) <= 2 * STEP
    if way == "connect":
        async with await Bus.connect(str(url), LogConfig(), name="test/e2e/w", writer="reader") as bus:
            await balances(bus)
        up.send_signal(signal.SIGTERM)
        up.communicate(timeout=DEADLINE_S)
    else:
        async with open_log(log_of(out).where, None, name="test") as bus:
            await balances(bus)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
async def test_a_trainer_goes_on_when_the_server_of_the_log_is_killed(tmp_path: Path) -> None:
    """F2, B10: while it asks, waits and commits; everything is trained on once."""
    out, notes = tmp_path / "out", tmp_path / "notes"
    process = trainer(out, notes, None)
    killed = 0
    until((out / "logs").exists)
    for committed in (0, 2, 4):
        until(partial(is_further, process, out, notes, killed, committed))
        assert process.poll() is None, process.communicate()
        killed = server(out)
        os.kill(killed, signal.SIGKILL)
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, said
    trained = [group for groups in steps(notes, "trained") for group in groups]
    assert len(trained) == len(set(trained)) == GROUPS
    async with open_log(log_of(out).where, None, name="test") as bus:
        await balances(bus)


def is_further(process: subprocess.Popen[str], out: Path, notes: Path, killed: int, committed: int) -> bool:
    """It has ended; or another server is there, and so many steps are committed."""
    if process.poll() is not None:
        return True
    return server(out) not in (0, killed) and len(steps(notes, "committed")) >= committed


def server(out: Path) -> int:
    """The process ID of the server that is there now; 0 if none is."""
    with suppress(OSError, ValueError):
        return int((out / "log" / "nats-server.pid").read_text())
    return 0


async def balances(bus: Bus) -> None:
    report = await audit(bus, "grpo")
    assert report.requested == report.completed == GROUPS * SIZE
