"""A worker's process by itself: what it reads, what it says, how it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bus import LogConfig
from components.workers.spec import WorkerSpec
from tests.batch import GRANTS_BATCH
from tests.e2e.workers import PATIENCE_S, PROJECT


def start(url: str, log: LogConfig, config: dict[str, Any], **spec_fields: Any) -> subprocess.Popen[bytes]:
    spec = WorkerSpec(
        kind="models",
        instance="policy",
        implementation="noting",
        config=config,
        log=log.model_dump(),
        url=url,
        roots=(str(PROJECT),),
        **spec_fields,
    )
    command = [sys.executable, "-P", "-m", "components.workers"]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen(command, **pipes)
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(spec))
    process.stdin.close()
    process.stdin = None  # else `communicate` would write to it
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_told_to_stop_while_it_starts_stops(
    server: str, config: LogConfig, tmp_path: Path, number: signal.Signals
) -> None:
    """A model may load its weights for minutes, and its container gives it ten seconds to end."""
    notes = tmp_path / "notes"
    process = start(server, config, {"notes": str(notes), "starts_in_s": 600.0})
    deadline = time.monotonic() + PATIENCE_S
    while not notes.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    if GRANTS_BATCH:
        assert os.sched_getscheduler(process.pid) != os.SCHED_OTHER, "it would interrupt others for each message"
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (0, b"")
    assert b"Traceback" not in err
    assert notes.read_text().split() == ["starting", "stopped"]


@pytest.mark.slow
def test_a_worker_that_does_not_end_by_itself_is_ended(server: str, config: LogConfig, tmp_path: Path) -> None:
    """Whoever started it may have been killed, and nobody else knows of it."""
    process = start(server, config, {"notes": str(tmp_path / "notes"), "stops_in_s": 600.0}, drain_s=0.0)
    assert process.stdout is not None
    assert b"ready" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -signal.SIGALRM


def test_what_is_no_spec_is_refused() -> None:
    command = [sys.executable, "-P", "-m", "components.workers"]
    ran = subprocess.run(command, input=b'{"kind": "models"}', capture_output=True, timeout=PATIENCE_S, check=False)
    assert ran.returncode == 2
    assert ran.stderr.startswith(b"standard input must hold one worker spec as JSON: ")
