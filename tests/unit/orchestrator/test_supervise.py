"""How worker processes are kept running: real processes, small scripts in place of workers."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from components.workers.exits import GROWN, LOG_AWAY, REFUSED, SAID
from contracts.deployments import REDACTED
from orchestrator.errors import WorkerDied
from orchestrator.redaction import Redactor
from orchestrator.settings import LaunchSettings
from orchestrator.supervise import Supervisor, WorkerCommand, pause_s
from orchestrator.venvs import Python

SPEC = "import os, signal, subprocess, sys, time\nspec = sys.stdin.read()\n"
READY = "print('{\"ready\": true}', flush=True)\nwhile True: time.sleep(0.01)\n"
SERVE = SPEC + "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n" + READY


def command(script: str, name: str = "policy-0", spec: bytes = b"{}") -> WorkerCommand:
    return WorkerCommand(name, [sys.executable, "-I", "-S", "-c", script], spec)


@asynccontextmanager
async def supervisor(
    folder: Path, *, secret: str = "", **settings: float
) -> AsyncIterator[tuple[Supervisor, list[str]]]:
    told: list[str] = []
    redactor = Redactor(values=[secret])
    made = Supervisor(LaunchSettings.model_validate(settings), folder / "logs", redactor, told.append)
    try:
        yield made, told
    finally:
        await made.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what other processes do sets no event
            await asyncio.sleep(0.01)


def log(folder: Path, name: str = "policy-0") -> str:
    return (folder / "logs" / f"{name}.log").read_text()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_start_returns_when_every_worker_serves(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as (workers, _):
        await workers.start([command(SERVE, "a-0"), command(SERVE, "b-0")])
        assert set(workers.pids) == {"a-0", "b-0"}
        assert all(alive(pid) for pid in workers.pids.values())


async def test_a_worker_reads_its_spec_whole_and_what_it_prints_is_in_its_log(tmp_path: Path) -> None:
    script = SPEC + "print(len(spec)); print('oh', file=sys.stderr)\n" + READY
    async with supervisor(tmp_path) as (workers, _):
        await workers.start([command(script, spec=b"x" * 300_000)])
    assert sorted(log(tmp_path).splitlines()) == ["300000", "oh"]


async def test_a_worker_that_dies_at_start_is_tried_again_and_then_its_log_is_shown(tmp_path: Path) -> None:
    script = "import sys; sys.stderr.write('first\\nno module named x\\n'); sys.exit(1)"
    async with supervisor(tmp_path, failed_starts=2) as (workers, told):
        with pytest.raises(WorkerDied) as raised:
            await workers.start([command(SERVE, "good-0"), command(script)])
    assert "policy-0 ended with exit code 1 before it served, 2 times in a row" in str(raised.value)
    assert str(raised.value).endswith("  first\n  no module named x")
    assert sum("starting it again" in step for step in told) == 1


async def test_a_worker_that_refuses_says_so_in_one_line_and_is_not_tried_again(tmp_path: Path) -> None:
    script = 'import sys; sys.stderr.write(\'{"event": "worker.refused", "message": "no such key"}\\n\'); sys.exit(2)'
    async with supervisor(tmp_path, failed_starts=9) as (workers, told):
        with pytest.raises(WorkerDied, match=r"^worker policy-0: no such key$"):
            await workers.start([command(script)])
    assert told == []


async def test_a_worker_that_does_not_serve_in_time_is_ended(tmp_path: Path) -> None:
    async with supervisor(tmp_path, failed_starts=1, start_deadline_s=0.1) as (workers, _):
        with pytest.raises(WorkerDied, match=r"killed by SIGKILL because it did not serve within 0.1 s"):
            await workers.start([command("import time\nwhile True: time.sleep(1)")])


async def test_a_worker_that_dies_later_is_started_again(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as (workers, told):
        await workers.start([command(SERVE)])
        first = workers.pids["policy-0"]
        os.kill(first, signal.SIGKILL)
        await until(lambda: workers.pids.get("policy-0", first) != first)
    assert "policy-0 was killed by SIGKILL; starting it again" in told[0]


def test_what_ends_at_once_is_started_less_and_less_often_and_what_has_served_is_soon_back() -> None:
    """A crash loop costs two starts a minute in the end; a worker that did something first is not kept away."""
    assert [pause_s(restarts, 0.0) for restarts in range(9)] == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert [pause_s(restarts, 10.0) for restarts in (5, 6, 7)] == [0.25, 6.0, 20.0]
    assert {pause_s(restarts, 30.0) for restarts in (0, 7, 10_000)} == {0.25}


async def test_a_worker_that_crashed_is_told_of_and_one_that_was_killed_or_lost_the_log_is_not(tmp_path: Path) -> None:
    """B6: whoever kills a worker accuses nothing that it held, and a code accuses unless the worker said why before."""
    crashed: set[tuple[str, str]] = set()
    go = tmp_path / "go"

    async def hear(worker: str, how: str) -> None:
        crashed.add((worker, how))

    def says_and_exits(code: int) -> str:
        return (
            f'print(\'{{"event": "{SAID[code]}", "message": "why"}}\', file=sys.stderr, flush=True); os._exit({code})'
        )

    def serves_and(name: str, ends: str) -> str:
        ready = f'print(\'{{"ready": true, "worker": "{name}"}}\', flush=True)\n'
        return f"{SPEC}{ready}while not os.path.exists({str(go)!r}): time.sleep(0.01)\n{ends}\ntime.sleep(60)\n"

    ends = {
        "crash-0": "os.abort()",
        "exit-0": "os._exit(1)",
        "quiet-0": "os._exit(0)",
        "refuses-0": f"os._exit({REFUSED})",
        "kill-0": "os.kill(os.getpid(), signal.SIGKILL)",
        "end-0": "os.kill(os.getpid(), signal.SIGTERM)",
        "code-0": f"os._exit({LOG_AWAY})",
        "code-1": f"os._exit({GROWN})",
        "away-0": says_and_exits(LOG_AWAY),
        "grown-0": says_and_exits(GROWN),
    }
    told: list[str] = []
    workers = Supervisor(LaunchSettings(), tmp_path / "logs", Redactor(), told.append, on_crash=hear)
    await workers.start([command(serves_and(name, how), name) for name, how in ends.items()])
    go.touch()
    await until(lambda: len({step.split()[0] for step in told}) == len(ends) and len(crashed) >= 6)
    await workers.stop()
    assert crashed == {
        ("crash-0", "was killed by SIGABRT"),
        ("exit-0", "ended with exit code 1"),
        ("quiet-0", "ended with exit code 0"),
        ("refuses-0", f"ended with exit code {REFUSED}"),
        ("code-0", f"ended with exit code {LOG_AWAY}"),
        ("code-1", f"ended with exit code {GROWN}"),
    }
    assert any(
        step.startswith("grown-0 ended because it took more memory than its pool.memory_mb (why)") for step in told
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such disk")
async def test_a_worker_goes_on_when_there_is_no_room_for_what_it_says(tmp_path: Path) -> None:
    """B9: somebody reads it all the same, or it would wait for that."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "policy-0.log").symlink_to("/dev/full")
    says = "for _ in range(4): print('x' * 100_000, file=sys.stderr, flush=True)\n"
    async with supervisor(tmp_path, start_deadline_s=10) as (workers, told):
        await workers.start([command(SPEC + says + READY)])
        assert told == []


async def test_workers_are_started_only_while_the_log_serves(tmp_path: Path) -> None:
    """B10: a worker that starts while the server is away could only fail; one that is to end does not wait for it."""
    log_serves = asyncio.Event()
    log_serves.set()
    redactor = Redactor(values=[])
    told: list[str] = []
    workers = Supervisor(LaunchSettings(), tmp_path / "logs", redactor, told.append, until_log_serves=log_serves.wait)
    await workers.start([command(SERVE, "a-0"), command(SERVE, "b-0")])
    log_serves.clear()
    first = dict(workers.pids)
    for pid in first.values():
        os.kill(pid, signal.SIGKILL)
    await until(lambda: workers.pids == {} and len(told) == 2)
    log_serves.set()
    await until(lambda: len(workers.pids) == 2)
    log_serves.clear()
    os.kill(workers.pids["a-0"], signal.SIGKILL)
    await until(lambda: "a-0" not in workers.pids)
    await workers.stop()
    assert workers.pids == {}


async def test_watch_tells_of_a_worker_that_does_not_come_back(tmp_path: Path) -> None:
    once = tmp_path / "once"
    script = (
        f"import os\nif os.path.exists({str(once)!r}): raise SystemExit(1)\nopen({str(once)!r}, 'w').close()\n{SERVE}"
    )
    async with supervisor(tmp_path, failed_starts=1) as (workers, _):
        await workers.start([command(script)])
        watching = asyncio.create_task(workers.watch())
        os.kill(workers.pids["policy-0"], signal.SIGKILL)
        with pytest.raises(WorkerDied):
            await watching


async def test_stop_lets_workers_finish(tmp_path: Path) -> None:
    finish = "def end(*_):\n    os.write(1, b'finished')\n    sys.exit(0)\n"
    async with supervisor(tmp_path) as (workers, _):
        await workers.start([command(SPEC + finish + "signal.signal(signal.SIGTERM, end)\n" + READY)])
    assert log(tmp_path) == "finished\n"


async def test_stop_kills_a_worker_that_does_not_end_and_what_it_started(tmp_path: Path) -> None:
    child = "child = subprocess.Popen([sys.executable, '-c', 'while True: pass'])\nprint(child.pid, flush=True)\n"
    script = SPEC + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + child + READY
    async with supervisor(tmp_path, drain_s=0.1) as (workers, told):
        await workers.start([command(script)])
        await until(lambda: log(tmp_path).endswith("\n"))
        pids = [workers.pids["policy-0"], int(log(tmp_path))]
    assert "did not end within 0.1 s" in told[-1]
    await until(lambda: not alive(pids[0]) and not _runs(pids[1]))


async def test_a_stop_that_is_cancelled_kills_at_once(tmp_path: Path) -> None:
    deaf = SPEC + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + READY
    async with supervisor(tmp_path, drain_s=3600) as (workers, _):
        await workers.start([command(deaf)])
        pid = workers.pids["policy-0"]
        stopping = asyncio.create_task(workers.stop())
        await asyncio.sleep(0)
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        assert not alive(pid)


async def test_a_worker_that_is_stopped_while_it_is_started_ends(tmp_path: Path) -> None:
    async with supervisor(tmp_path, drain_s=3600) as (workers, _):
        starting = asyncio.create_task(workers.start([command(SERVE)]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        starting.cancel()


async def test_secrets_are_not_in_the_logs(tmp_path: Path) -> None:
    script = SPEC + "print('key sk-abcdef', flush=True)\n" + READY
    async with supervisor(tmp_path, secret="sk-abcdef") as (workers, _):
        await workers.start([command(script)])
        await until(lambda: log(tmp_path).endswith("\n"))
    assert log(tmp_path) == f"key {REDACTED}\n"


async def test_a_line_of_any_length_is_copied_in_pieces_that_cut_no_secret_in_two(tmp_path: Path) -> None:
    """E10: joined anew with each read, a line of 100 MB took so long that the worker, which waited, was ended."""
    said = "'é' * 40_000 + 'sk-abcdef' * 40_000 + 'nats://me:pass@hub ' * 40_000 + '.' * 500_000"
    script = f"{SPEC}sys.stdout.write({said} + '\\n')\n{READY}"
    async with supervisor(tmp_path, secret="sk-abcdef") as (workers, _):
        await workers.start([command(script)])
    pieces = log(tmp_path).splitlines()
    assert "".join(pieces) == "é" * 40_000 + REDACTED * 40_000 + f"nats://me:{REDACTED}@hub " * 40_000 + "." * 500_000
    assert max(map(len, pieces)) < 140_000


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells a child of its parent's death on Linux only")
async def test_a_worker_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(60)\n")
    parent = f"""
import subprocess, sys, time
from orchestrator.venvs import Python
command = Python(sys.executable, is_own=True).command("child")
child = subprocess.Popen(command, stdout=subprocess.PIPE, env={{"PYTHONPATH": {str(tmp_path)!r}}})
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(60)
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", parent, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    child = int(await process.stdout.readline())
    process.kill()
    await process.wait()
    await until(lambda: not _runs(child))


def test_a_command_keeps_the_working_directory_off_the_path() -> None:
    assert Python("/x/python", is_own=False).command("components.workers")[:2] == ["/x/python", "-P"]


def _runs(pid: int) -> bool:
    """Whether it is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
