"""`replay list`: which rollouts, in which order, with which columns."""

import json
import re
from pathlib import Path

import pytest

from bus import Subjects
from replay.columns import MORE
from replay.file_source import export_lines
from replay.listing import ROLLOUTS
from replay.ui.filters import NAMES
from tests.unit.replay.examples import overlapping, recorded_run
from tests.unit.replay.test_cli import Replay, log, replay

__all__ = ["log", "replay"]


def listed(replay: Replay, log: Path, *arguments: str) -> list[str]:
    code, out, err = replay("list", *arguments, "--file", log, "--json")
    assert code == 0, err
    return [json.loads(line)["rollout_id"] for line in out.splitlines()]


def test_an_export_has_the_order_of_ending_and_the_last_of_its_log(replay: Replay, tmp_path: Path) -> None:
    """Also where the log has partitions, and is written one after the other, as `jetgym log archive` does."""
    ending = [2, 3, 0, 4, 1]
    events = overlapping(recorded_run(5, Subjects("jetgym", 2)), ending)
    in_partitions = sorted(events, key=lambda each: each.subject.split(".")[1])
    log = tmp_path / "log.jsonl"
    log.write_bytes(b"".join(line + b"\n" for line in export_lines(in_partitions, {})))
    export = tmp_path / "export.jsonl"
    assert replay("export", "--file", log, "-o", export)[0] == 0
    for file in (log, export):
        assert listed(replay, file) == [f"r1-{index:05d}-00" for index in ending]
        assert "r1-00001-00" in replay("show", "last", "--file", file)[1]


def test_list_takes_the_words_of_the_web_app(replay: Replay, log: Path) -> None:
    every = ["r1-00000-00", "r1-00001-00", "r1-00002-00"]
    assert listed(replay, log, "reward>=1", "outcome:completed") == every
    assert listed(replay, log, "task=1") == every[1:2]
    assert listed(replay, log, "text:5 * 7") == listed(replay, log, '"5 * 7"') == every
    assert listed(replay, log, "reward>=0 -task=1") == [every[0], every[2]]
    assert listed(replay, log, "version>=1") == []
    assert listed(replay, log, "-task=1", "--sort", "-task") == [every[2], every[0]]
    assert listed(replay, log, "reward>=0", "--limit", "1", "-task<1") == [every[1]]
    assert [replay("list", unknown, "--file", log)[0] for unknown in ("--rewards", "-n")] == [2, 2]
    assert replay("list", "rewrd<1", "--file", log)[0] == 2
    code, _, err = replay("list", "-task=1", "--run")
    assert (code, "'--run' requires an argument" in err) == (2, True), err


def test_list_finds_what_was_said_anywhere_in_a_rollout(replay: Replay, log: Path) -> None:
    assert len(listed(replay, log, "--grep", "12 AND 35")) == 3
    assert len(listed(replay, log, "--grep", '"a": 5')) == 3
    assert listed(replay, log, "--grep", "12 and 36") == []


def test_list_is_sorted_and_has_the_columns_asked_for(replay: Replay, log: Path) -> None:
    assert listed(replay, log, "--sort", "-task", "--limit", "2") == ["r1-00002-00", "r1-00001-00"]
    code, out, _ = replay("list", "--file", log, "--columns", "task,rollout,version", "--sort", "-task")
    assert code == 0
    assert [line.split() for line in out.splitlines()[:2]] == [["task", "rollout", "version"], ["2", "r1-00002-00"]]
    code, _, err = replay("list", "--file", log, "--columns", "nothing")
    assert (code, "no column 'nothing'" in err) == (2, True)


def test_what_is_filtered_sorted_and_shown_has_one_name_which_the_help_tells(replay: Replay) -> None:
    """A number is compared, a text is looked into; a column of each can be shown."""
    assert {column.title for column in ROLLOUTS} | {column.title for column in MORE} == set(NAMES)
    told = re.split(r"\W+", replay("list", "--help")[1])
    assert set(NAMES) <= set(told)
    assert "lag" not in told


@pytest.mark.parametrize("verb", [("list", "--file"), ("ui", "--no-open")])
def test_a_file_of_something_else_could_not_be_read(replay: Replay, tmp_path: Path, verb: tuple[str, str]) -> None:
    """R7: what `jetgym rebuild` writes is no export, and no run without rollouts either."""
    (tmp_path / "rollouts.jsonl").write_text('{"_ng_task_index": 0, "reward": 1.0}\n')
    code, out, err = replay(*verb, tmp_path / "rollouts.jsonl")
    assert (code, out) == (2, "")
    assert "rollouts.jsonl:1: not an exported event" in err
