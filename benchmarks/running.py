"""How does a benchmark run JetGym, and the bare pipeline beside it?

As their users do: `jetgym run` in a process of its own, with its server and its workers; the bare pipeline as the
script that it is. What a run came to is read from its files, its workers' logs and its event log. Used by all scripts
of this folder that measure whole runs; it measures nothing itself.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bus import Bus
from bus.opening import log_of, open_log
from bus.run_folder import METRICS, WORKER_LOGS, live

ROOT = Path(__file__).parent.parent
BARE = ROOT.parent / "shared" / "bench" / "bare_pipeline.py"
"""Where the bare pipeline is looked for; it stays outside the repository."""
MOST = 65_536
"""Rollouts in flight at once that the configs of this folder allow."""
STOP_S = 60.0
"""Seconds that a run gets to end after an interrupt."""
TASK = {
    "responses_create_params": {
        "input": [{"role": "user", "content": "x" * 600}],
        "tools": [
            {
                "type": "function",
                "name": "get_weather",
                "description": "The weather in a city.",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
                "strict": False,
            }
        ],
    }
}


class Failed(Exception):
    """The measurement could not be made."""


class Run:
    """One `jetgym run` that goes on."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, seconds: float) -> None:
        self.folder = folder
        self._process, self._deadline = process, time.monotonic() + seconds

    @property
    def workers(self) -> dict[str, int]:
        """The process IDs of the workers by name, as they were first started; empty before they serve."""
        workers: dict[str, int] = (live(self.folder) or {}).get("workers", {})
        return workers

    def going(self) -> bool:
        """Whether it still runs; raises `Failed` after its deadline."""
        if time.monotonic() > self._deadline:
            raise Failed(f"the run did not end in time; its logs are in {self.folder}")
        return self._process.poll() is None

    def wait(self) -> dict[str, Any]:
        """Waits for the end; returns the `run` part of its metrics."""
        while self.going():
            time.sleep(0.2)
        if self._process.returncode:
            raise Failed(f"jetgym run ended with exit code {self._process.returncode}")
        found: dict[str, Any] = json.loads((self.folder / METRICS).read_text())["run"]
        return found

    def log(self) -> AbstractAsyncContextManager[Bus]:
        """Its event log, after its end."""
        return open_log(log_of(self.folder).where, None, name="benchmark")

    def said(self, worker: str, event: str) -> list[dict[str, Any]]:
        """The lines of a worker's log about one event."""
        lines = (self.folder / WORKER_LOGS / f"{worker}.log").read_text().splitlines()
        return [json.loads(line) for line in lines if f'"event": "{event}"' in line]


@contextmanager
def jetgym_run(
    config: str, rollouts: int, *overrides: str, seconds: float = 600.0, show: bool = False, folder: Path = ROOT
) -> Iterator[Run]:
    """Starts `jetgym run` with a config of `configs/`; it ends with the context, and so do its files.

    Args:
        config: name of the config, without `.yaml`.
        rollouts: how many, each of the same task.
        overrides: of the config.
        seconds: after which `Run.going` and `Run.wait` give it up.
        show: let its progress be seen, on standard error.
        folder: the project that it runs in, for components of its own.
    """
    with TemporaryDirectory() as temporary:
        tasks, output = Path(temporary) / "tasks.jsonl", Path(temporary) / "run"
        tasks.write_text(f"{json.dumps(TASK)}\n" * rollouts)
        command = [sys.executable, "-m", "orchestrator", "run", str(ROOT / "configs" / f"{config}.yaml"), *overrides]
        process = subprocess.Popen(
            [*command, "--input", str(tasks), "--output", str(output)],
            cwd=folder,
            stdout=sys.stderr if show else subprocess.DEVNULL,
            stderr=None if show else subprocess.DEVNULL,
        )
        try:
            yield Run(process, output, seconds)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(STOP_S)
                process.kill()
                process.wait()


def bare(
    path: Path, rollouts: int, *, turns: int = 1, latency_s: float = 0.0, seconds: float = 600.0
) -> dict[str, Any]:
    """What the bare pipeline prints of itself."""
    command = [
        sys.executable,
        str(path),
        "--rollouts",
        str(rollouts),
        "--turns",
        str(turns),
        "--latency",
        str(latency_s),
    ]
    try:
        printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=seconds).stdout
    except subprocess.SubprocessError as error:
        raise Failed(f"the bare pipeline: {error}") from error
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


def peak_mb(pid: int) -> int:
    """The largest memory that a process has had so far, 0 if it is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return round(int(line.split()[1]) / 1024)
    return 0


def report(figures: dict[str, Any], *, as_json: bool) -> None:
    """Prints what was measured: one JSON line, or a line for each figure."""
    if as_json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:24} {value}")
