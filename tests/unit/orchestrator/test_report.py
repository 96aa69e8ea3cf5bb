"""What a run tells a person: while it goes on, and at its end."""

import asyncio
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from bus import BusError, Unreachable
from bus.room import FullStream
from bus.run_folder import METRICS
from contracts.rollouts import RolloutStats, Timings, Usage
from orchestrator import progress
from orchestrator.progress import CollectProgress
from orchestrator.report import RunReport
from orchestrator.results import Outcome

BEFORE = datetime.now(UTC) - timedelta(hours=1)


def ended(
    index: int,
    *,
    reward: float | None = 1.0,
    time: datetime | None = None,
    message: str = "",
    stats: RolloutStats | None = None,
) -> Outcome:
    return Outcome(
        rollout_id=f"r-{index}",
        agent="solver",
        task_index=index,
        rollout_index=0,
        attempt=0,
        line=b"{}",
        reward=reward,
        error=None if reward is not None else "timeout",
        message=message,
        stats=stats,
        time=time or datetime.now(UTC) + timedelta(seconds=1),
    )


def shown(report: RunReport, folder: Path, log: list[str] | None = None) -> str:
    text = io.StringIO()
    report.show(Console(file=text, width=80), folder, log or [])
    return text.getvalue()


def test_what_ended_before_a_run_was_resumed_is_counted_and_tells_nothing_of_the_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 0.0, 4.0])
    monkeypatch.setattr("orchestrator.report.time.monotonic", lambda: next(clock))
    report = RunReport("r1", {})
    report.start()
    for index in range(3):
        report.add(ended(index, time=BEFORE))
    assert report.document()["run"]["completed"] == 3
    assert report.document()["run"]["rollouts_per_s"] is None
    report.add(ended(3))
    run = report.document()["run"]
    assert run["ended_earlier"] == 3
    assert run["rollouts_per_s"] == 0.25
    assert "4 completed, 0 failed (3 of them before this command) in 4.0 s, 0.2 rollouts/s" in shown(report, tmp_path)


def test_a_finished_run_that_is_resumed_keeps_its_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.0, 4.0])
    monkeypatch.setattr("orchestrator.report.time.monotonic", lambda: next(clock, 9.0))
    first = RunReport("r1", {})
    first.start()
    first.add(ended(0))
    first.write(tmp_path)
    written = json.loads((tmp_path / METRICS).read_text())
    assert written["run"]["wall_s"] == 4.0
    again = RunReport("r1", {})
    again.start()
    again.add(ended(0, time=BEFORE))
    again.write(tmp_path)
    assert json.loads((tmp_path / METRICS).read_text()) == written
    assert "1 completed, 0 failed (1 of them before this command)\n" in shown(again, tmp_path)


def test_a_run_that_is_read_from_its_log_took_from_its_first_request_to_its_last_end() -> None:
    report = RunReport("r1", {})
    for index, seconds in enumerate((0, 9, 4)):
        report.add_recorded(ended(index, time=BEFORE + timedelta(seconds=seconds), stats=stats()))
    run = report.document()["run"]
    assert (run["wall_s"], run["rollouts_per_s"], run["ended_earlier"], run["completed"]) == (10.0, 0.3, 0, 3)
    assert run["started"] == (BEFORE - timedelta(seconds=1)).isoformat()


def test_t16_rollouts_without_a_token_to_train_on_are_counted_where_tokens_were_asked_for(tmp_path: Path) -> None:
    """T16: in the metrics and on the terminal; a failure has no reward and is counted as a failure only."""
    report = RunReport("r1", {})
    report.add(ended(0, stats=stats()))
    assert "token" not in shown(report, tmp_path).partition("Written:")[0].partition("completed,")[2]
    assert "tokenless_rollouts" not in report.document()["run"]
    report.add(ended(1, stats=stats(captured=3)))
    assert "tokens captured of 3 model calls\n" in shown(report, tmp_path)
    report.add(ended(2, stats=stats(captured=1, flawed=2)))
    report.add(ended(3, stats=stats(flawed=3)))
    report.add(ended(4, reward=None, stats=stats(flawed=1)))
    told = "tokens of 6 of 10 model calls were refused; 1 completed rollout without any to train on"
    assert told in " ".join(shown(report, tmp_path).split())
    document = report.document()
    for metrics in (document["run"], document["agents"]["solver"]):
        assert (metrics["captured_calls"], metrics["tokenless_calls"], metrics["tokenless_rollouts"]) == (4, 6, 1)


def stats(*, captured: int = 0, flawed: int = 0) -> RolloutStats:
    timings = Timings(queue_s=0.0, total_s=1.0)
    return RolloutStats(usage=Usage(), timings=timings, turns=3, captured=captured, flawed=flawed)


def test_figures_in_the_metrics_are_without_the_last_bits_of_sums() -> None:
    report = RunReport("r1", {})
    for index in range(3):
        report.add(ended(index, reward=0.1))
    run = report.document()["run"]
    assert run["reward"]["mean"] == run["pass@k"]["1"] == run["mean@k"]["1"] == 0.1


def test_one_failure_of_each_kind_is_shown_with_its_message(tmp_path: Path) -> None:
    report = RunReport("r1", {})
    report.start()
    report.add(ended(0, reward=None, message="the model did not answer\nwithin 3 s"))
    report.add(ended(1, reward=None, message="x" * 1000))
    assert "2 failed with timeout, one of them:\n  the model did not answer within 3 s\n" in shown(report, tmp_path)


def test_the_commands_to_go_on_with_name_the_run_and_where_its_log_is(tmp_path: Path) -> None:
    report = RunReport("r1", {})
    report.start()
    assert f"replay show last --run {tmp_path}\n" in shown(report, tmp_path)
    assert "replay show last\n" in shown(report, Path("results/r1"))
    elsewhere = shown(report, tmp_path, ["--url", "nats://h:4222", "--namespace", "lab"])
    assert "replay show last --url nats://h:4222 --namespace lab --run r1\n" in elsewhere


async def has_room() -> None:
    """What is asked of a log that is not full."""


async def test_a_full_log_is_told_once_and_so_is_that_it_has_room_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """B9."""
    monkeypatch.setattr(progress, "ROOM_EVERY_S", 0.01)
    text = io.StringIO()
    full = FullStream("jetgym_0", 2_000_000, 2_097_152)
    looks: list[FullStream | BusError | None] = [None, full, full, Unreachable("away"), full, None]

    async def look() -> FullStream | None:
        found = looks.pop(0) if looks else None
        if isinstance(found, BusError):
            raise found
        return found

    async with CollectProgress(5, Console(file=text, width=120), look, ["live"], concurrency=8) as shows:
        shows.add(ended(0))
        async with asyncio.timeout(30):
            while "has room again" not in text.getvalue():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    told = text.getvalue()
    assert told.count("the log is full (jetgym_0: 1.9 MB of 2.0 MB, log.max_bytes): 4 rollouts wait for room") == 1


@pytest.mark.parametrize("terminal", [True, False])
async def test_the_last_outcome_before_a_pause_is_shown(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PLAIN_EVERY_S", 0.01)
    text = io.StringIO()
    async with CollectProgress(
        5, Console(file=text, force_terminal=terminal, width=120), has_room, [], concurrency=3
    ) as shows:
        async with asyncio.timeout(30):
            while terminal and "3 in flight" not in text.getvalue():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        shows.add(ended(0))
        shows.add(ended(1, reward=None))
        async with asyncio.timeout(30):
            while "2/5" not in text.getvalue() or "1 failed" not in text.getvalue():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
