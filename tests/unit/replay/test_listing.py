"""Lists on terminals of any width: lines that are whole, with the columns that fit."""

import io
from datetime import UTC, datetime
from typing import Literal

import pytest
from rich.console import Console

from replay.listing import ROLLOUTS, RowTable, draw_runs
from replay.rows import Row, outcome_text
from replay.runs import RunRow

NOW = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)


def console(width: int) -> Console:
    return Console(file=io.StringIO(), width=width)


def printed(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def run(
    state: Literal["ended", "running", "interrupted", "unfinished"] = "ended", completed: int = 24, where: str = ""
) -> RunRow:
    return RunRow(
        run_id="r1129-1612-x7k2",
        state=state,
        asked=24,
        completed=completed,
        failed=0,
        cancelled=0,
        mean_reward=0.123456,
        wall_s=119.5,
        started=NOW,
        where=where,
    )


def listed(runs: list[RunRow], width: int) -> list[str]:
    to = console(width)
    draw_runs(runs, to)
    return printed(to)


def test_a_run_that_has_not_ended_says_how_far_it_came() -> None:
    _, running, interrupted, ended = listed([run("running", 5), run("interrupted", 5), run()], 80)
    assert running.startswith("r1129-1612-x7k2  running 5/24 ")
    assert interrupted.startswith("r1129-1612-x7k2  interrupted 5/24 ")
    assert ended.startswith("r1129-1612-x7k2  ended  ")


@pytest.mark.parametrize("where", ["results/r1129-1612-x7k2", "results/first"])
def test_80_columns_have_what_matters_also_where_a_run_was_interrupted(where: str) -> None:
    heading, first, second = listed([run(), run("interrupted", 5, where)], 80)
    assert {"run", "state", "done", "failed", "reward", "time"} <= set(heading.split())
    assert max(map(len, (heading, first, second))) <= 80


def test_what_was_cancelled_is_no_failure() -> None:
    assert [outcome_text("cancelled", "cancelled"), outcome_text("failed", "poison")] == ["cancelled", "failed: poison"]
    """Not of a run, which tells it where there is any, and not in what rollouts come to."""
    off = RunRow(run_id="r1", state="ended", asked=3, failed=1, cancelled=2, started=NOW)
    assert listed([off], 80)[0].split()[:5] == ["run", "state", "done", "failed", "cancelled"]
    assert "cancelled" not in listed([run()], 200)[0]
    table = RowTable(to := console(80), None, ROLLOUTS)
    for outcome in ("failed", "cancelled", "cancelled", "in flight"):
        table.add(Row(rollout_id="r1-00000-00", agent="a", outcome=outcome, started=NOW))
    table.end()
    assert printed(to)[-1] == "4 rollouts, 1 failed, 2 cancelled, 1 in flight"


def test_the_directory_of_a_run_is_told_where_it_has_another_name() -> None:
    heading, one, other = listed([run(where="results/r1129-1612-x7k2"), run("interrupted", 5, "results/first")], 80)
    assert heading.endswith("  directory")
    assert not one.endswith("x7k2")
    assert other.endswith("  results/first")
    assert "directory" not in listed([run(where="results/r1129-1612-x7k2")], 200)[0]


@pytest.mark.parametrize("width", [80, 60, 40, 20])
def test_no_line_of_runs_is_cut_or_broken(width: int) -> None:
    lines = listed([run(where="results/r1129-1612-x7k2"), run("interrupted", 5, "results/first")], width)
    assert len(lines) == 3
    assert lines[2].startswith("r1129-1612-x7k2  interrupted 5/24  ")
    assert lines[2].endswith("results/first")
    assert max(map(len, lines)) <= max(80, width)


@pytest.mark.parametrize("width", [80, 60, 20])
def test_no_line_of_rollouts_is_cut_or_broken(width: int) -> None:
    to = console(width)
    table = RowTable(to, None, ROLLOUTS)
    for index in range(3):
        table.add(
            Row(
                rollout_id=f"r1129-1612-x7k2-00003-{index:02d}",
                agent="an_agent_with_quite_a_long_name",
                outcome="failed",
                error="context_length_exceeded",
                turns=12,
                duration_s=119.5,
                started=NOW,
            )
        )
    table.end()
    lines = printed(to)
    assert [line.split()[0] for line in lines[1:4]] == [f"r1129-1612-x7k2-00003-0{index}" for index in range(3)]
    assert all("failed: context_length_exceeded" in line for line in lines[1:4])
    assert max(map(len, lines)) <= 80
