"""One run of many rollouts as a user types it, and what tests want to know of it."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from bus import Bus, EmbeddedServer, LogConfig
from tests.e2e.workers import PROJECT

DEADLINE_S = 120.0
TASK = {
    "responses_create_params": {"input": "Go."},
    "plan": [
        ["model"],
        ["appends", 1, 2, 3, 4],
        ["model"],
        ["tool", "add_slowly", {"count": 4, "seconds": 0.1}],
        ["model"],
    ],
    "expected": 1238,
}
"""The verifier gives 1 if the session was told all of the plan, in its order."""
TURNS = 3
ROLLOUTS = 24


class Run:
    """One run, in a folder of its own."""

    def __init__(self, folder: Path, *overrides: str) -> None:
        self.folder, self.out, self._overrides = folder, folder / "out", overrides
        self.notes = folder / "notes"
        (folder / "tasks.jsonl").write_text(ROLLOUTS * (json.dumps(TASK) + "\n"))

    def start(self, *flags: str) -> subprocess.Popen[str]:
        """Begins it, or goes on with it."""
        return jetgym("run", *self.config, *self.tasks, *flags)

    @property
    def tasks(self) -> list[str]:
        """What is to be run, and where to."""
        return ["--agent", "puppet", "--input", str(self.folder / "tasks.jsonl"), "--output", str(self.out)]

    @property
    def config(self) -> list[str]:
        """What `run` or `up` is told."""
        return ["main.yaml", f"policy.models.noting.notes={self.notes}", *self._overrides]

    def finish(self, process: subprocess.Popen[str]) -> str:
        """What it said, when it has ended well."""
        said, _ = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, said
        return said

    def calls(self) -> list[str]:
        """The model calls that were made."""
        return self.notes.read_text().split() if self.notes.exists() else []

    def server(self) -> int:
        """The process ID of the server that is there now; 0 if none is."""
        with suppress(OSError, ValueError):
            return int((self.out / "log" / "nats-server.pid").read_text())
        return 0

    def results(self) -> dict[str, Any]:
        """Each rollout's line, by its task, without what differs from run to run. Each has one line."""
        found: dict[str, Any] = {}
        for text in (self.out / "rollouts.jsonl").read_text().splitlines():
            line = json.loads(text)
            for name in ("rollout_id", "run_id", "timings"):
                del line[name]
            assert found.setdefault(line["task_index"], line) is line
        assert (self.out / "failures.jsonl").read_text() == ""
        return found

    def verified(self, *where: str) -> None:
        """The recorded rollouts are what the agent's code does."""
        command = [sys.executable, "-P", "-m", "replay", "verify", *(where or ["--run", str(self.out)])]
        done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{ROLLOUTS} same" in done.stdout


started: list[subprocess.Popen[str]] = []
"""By the test that runs; those that it leaves are killed when it ends."""


def jetgym(*arguments: str) -> subprocess.Popen[str]:
    """Starts a command."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "orchestrator", *arguments],
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    started.append(process)
    return process


def descendants(pid: int) -> set[int]:
    """The processes that it started, and those that they started."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def runs(pid: int) -> bool:
    """Whether it is there and no zombie."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


async def answered(run: Run) -> set[str]:
    """The model calls whose replies are in the log of a run at rest, `<rollout>/<call key>`."""
    server = await EmbeddedServer.start(run.out / "log", LogConfig())
    try:
        async with await Bus.connect(server.url, LogConfig(), name="test/e2e/w", writer="reader") as bus:
            found = [recorded.event async for recorded in bus.scan() if recorded.event.type == "model.replied"]
    finally:
        await server.stop()
    return {f"{event.rolloutid}/{event.callkey}" for event in found}


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
