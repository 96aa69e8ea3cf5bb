"""The log has a bound and a run reaches it: everybody waits, the person sees why, and nothing is lost."""

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

from bus import Bus, LogConfig
from bus.errors import LogFull
from bus.room import unless_full
from bus.run_folder import run_id
from orchestrator.commands.logs import opened
from tests.e2e.runs import DEADLINE_S, ROLLOUTS, TURNS, Run, answered, jetgym
from tests.e2e.workers import PROJECT

SMALL = 200_000
"""Bytes: about half of what the run writes."""


def until_full(process: subprocess.Popen[str]) -> str:
    """What the run says until it has said that the log is full."""
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if line.startswith("the log is full (jetgym_0: ") and " of 195.3 kB, log.max_bytes): " in line:
            return "".join(said)
    raise AssertionError("".join(said))


async def to_the_brim(folder: Path) -> None:
    """Fills what an event of the run had no room in: not even one that cancels goes in then.

    With events of no run: one of which only that is there would be one that is over.
    """
    async with opened(folder, None, None) as bus:
        for number in count():
            event = bus.event("deployment.stopping", bus.subjects.deployment("stopping", str(number)), b"{}")
            try:
                await unless_full(bus, bus.publish(event))
            except LogFull:
                return


def filled(folder: Path) -> tuple[Run, subprocess.Popen[str], str, subprocess.Popen[str]]:
    """A run on a deployment whose log is full: itself, the deployment and its URL, and the run's process."""
    run = Run(folder, f"++log.max_bytes={SMALL}")
    up = jetgym("up", *run.config, "--output", str(folder / "live"))
    assert up.stdout is not None
    url = next(line for line in up.stdout if line.startswith("ready at ")).split()[2].rstrip(";")
    process = run.start("--url", url)
    until_full(process)
    asyncio.run(to_the_brim(folder / "live"))
    return run, up, url, process


async def test_a_run_on_a_full_log_waits_and_goes_on_when_there_is_room(
    tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    """B9: admission and running rollouts alike; no call is made twice."""
    run, up, url, process = await asyncio.to_thread(filled, tmp_path)
    assert len((run.out / "rollouts.jsonl").read_text().splitlines()) < ROLLOUTS
    config = LogConfig(max_bytes=50 * SMALL)
    async with await Bus.connect(url, config, name="test/e2e/w", writer="w") as bus:
        await bus.ensure_log(adjust=True)
        run.finish(process)
    assert run.results() == undisturbed
    assert set(Counter(run.calls()).values()) == {1}
    assert len(run.calls()) == TURNS * ROLLOUTS
    up.send_signal(signal.SIGTERM)
    said, _ = up.communicate(timeout=DEADLINE_S)
    assert up.returncode == 0, said


def said_by(*arguments: str) -> tuple[int, str]:
    process = jetgym(*arguments)
    said, _ = process.communicate(timeout=DEADLINE_S)
    return process.returncode, said


def test_a_run_on_a_full_log_can_be_cancelled_and_pruned_without_a_restart(tmp_path: Path) -> None:
    """B9: who wants to write a line is told what to do, and nothing is half done; a larger bound lets all go on."""
    run, up, url, process = filled(tmp_path)
    assert process.stdout is not None
    prune, resize = process.stdout.readline(), process.stdout.readline()
    assert f"log prune --url {url} --keep 0" in prune
    assert f"log resize --url {url} --max-bytes {2 * SMALL}" in resize
    name = run_id(run.out)
    assert name is not None
    code, said = said_by("cancel", "--url", url)
    assert code == 2
    assert "error: the log is full (jetgym_0: " in said
    assert "so nothing was cancelled. Make room, then say it again:\n  no run in it is over" in said
    assert resize.strip() in said
    code, said = said_by(
        "run",
        "--url",
        url,
        "--input",
        str(tmp_path / "tasks.jsonl"),
        "--agent",
        "puppet",
        "--output",
        str(tmp_path / "second"),
    )
    assert code == 2
    assert "so the run cannot begin. Make room, then say it again:" in said
    code, said = said_by("log", "prune", "--url", url, "--run", name, "--yes")
    assert (code, "open rollouts: resume or cancel it first" in said) == (2, True)
    forking = ["fork", f"{name}-00000-00", "--at", "0", "--url", url]
    forked = subprocess.run(
        [sys.executable, "-P", "-m", "replay", *forking],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert forked.returncode == 2
    assert "error: the log is full, so this could not be written: take runs that are over out of it" in forked.stderr
    code, said = said_by("log", "resize", "--url", url, "--max-bytes", "1000")
    assert (code, "is no more than the log takes now" in said) == (2, True)
    code, said = said_by("log", "resize", str(tmp_path / "live"), "--max-bytes", str(50 * SMALL))
    assert (code, f"may take {50 * SMALL:,} bytes now" in said) == (0, True)
    assert said_by("cancel", "--url", url, "--run", name)[0] == 0
    process.communicate(timeout=DEADLINE_S)
    assert (
        len(
            (run.out / "rollouts.jsonl").read_text().splitlines()
            + (run.out / "failures.jsonl").read_text().splitlines()
        )
        == ROLLOUTS
    )
    assert said_by("log", "prune", "--url", url, "--run", name, "--yes")[0] == 0
    up.send_signal(signal.SIGTERM)
    up.communicate(timeout=DEADLINE_S)


async def test_a_run_that_fills_its_own_log_can_go_on_with_a_larger_one(
    tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    """B9: it waits until it is stopped; with the same bound nothing can begin; no answered call is made again."""
    run = Run(tmp_path, f"++log.max_bytes={SMALL}", "++launch.drain_s=2")
    process = run.start()
    until_full(process)
    await to_the_brim(run.out)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130, said
    before = await answered(run)
    again = run.start("--resume")
    said, _ = again.communicate(timeout=DEADLINE_S)
    assert again.returncode == 2
    assert "error: the log is full, so nothing can begin: give it a larger log.max_bytes" in said
    assert "To go on:" not in said
    larger = Run(tmp_path, f"++log.max_bytes={50 * SMALL}")
    larger.finish(larger.start("--resume"))
    assert larger.results() == undisturbed
    made = Counter(larger.calls())
    assert not {call for call, count in made.items() if count > 1} & before
    larger.verified()
