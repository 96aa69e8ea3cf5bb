"""Whole runs verified: several processes, files for programs, and the loose comparison."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from components.agents.base import AgentConfig
from components.agents.simple_agent.app import SimpleAgent
from contracts.responses import Response, ResponseCreateParams
from replay.engine import departure_of
from replay.trajectory import Trajectory
from replay.verdict_files import Junit
from replay.verify import Verdict
from tests.unit.replay.examples import CALCULATOR, Clumsy, calculator, edited, recorded_run, task, trajectory_of
from tests.unit.replay.recorder import Recorder
from tests.unit.replay.test_cli import Replay, log, replay, tamper

__all__ = ["log", "replay"]


def test_several_processes_come_to_the_verdicts_of_one(replay: Replay, log: Path) -> None:
    tamper(log, "r1-00001-00")
    one, two = (replay("verify", "--file", log, "--json", "--jobs", str(jobs)) for jobs in (1, 2))
    assert one[:2] == two[:2]
    assert one[0] == 1


def test_verdicts_go_into_files_beside_the_summary(replay: Replay, log: Path, tmp_path: Path) -> None:
    tamper(log, "r1-00001-00")
    code, out, _ = replay("verify", "--file", log, "--junit", tmp_path / "v.xml", "--jsonl", tmp_path / "v.jsonl")
    assert (code, out.splitlines()[0]) == (1, "3 rollouts: 2 same, 1 departs")
    verdicts = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()]
    assert [verdict["verdict"] for verdict in verdicts] == ["same", "differs", "same"]
    suite = ET.parse(tmp_path / "v.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "0")
    assert [case.get("name") for case in suite] == ["r1-00000-00", "r1-00001-00", "r1-00002-00"]
    assert {case.get("classname") for case in suite} == {"simple_agent"}
    (failed,) = [case for case in suite if case.find("failure") is not None]
    assert failed.get("name") == "r1-00001-00"
    assert list(tmp_path.glob("*.partial")) == []


def test_a_junit_file_takes_whatever_a_model_wrote(tmp_path: Path) -> None:
    with Junit(tmp_path / "v.xml") as junit:
        junit.add(Verdict(rollout_id="r", verdict="could not run", reason='<&"\x00\x1b]]> \n\ud7ff'))
    suite = ET.parse(tmp_path / "v.xml").getroot()
    assert suite.get("errors") == "1"


def test_a_file_that_cannot_be_written_ends_with_2(replay: Replay, log: Path, tmp_path: Path) -> None:
    """R7."""
    code, _, err = replay("verify", "--file", log, "--junit", tmp_path / "no" / "v.xml")
    assert code == 2
    assert "cannot be written" in err


def test_loose_says_nothing_of_other_arguments_and_still_of_other_calls() -> None:
    trajectory = trajectory_of(recorded_run(1))
    asked = next(event for event in trajectory.events if event.event.type == "tool.requested")
    other = Trajectory("r1-00000-00", edited(trajectory.events, asked.seq, b'\\"b\\": 7', b'\\"b\\": 8'))
    run = next(other.executions())
    assert departure_of(other, run, SimpleAgent, CALCULATOR) is not None
    assert departure_of(other, run, SimpleAgent, CALCULATOR, loose=True) is None
    fewer = Trajectory("r1-00000-00", [event for event in trajectory.events if event.event.callkey != "m1_0"])
    assert departure_of(fewer, next(fewer.executions()), SimpleAgent, CALCULATOR, loose=True) is not None


def test_loose_compares_the_kinds_of_errors_and_not_their_texts() -> None:
    class Wordy(Clumsy):
        async def responses(self, request: ResponseCreateParams) -> Response:
            await self.model.responses(request)
            raise RuntimeError("another text")

    class Cured(Clumsy):
        async def responses(self, request: ResponseCreateParams) -> Response:
            return await self.model.responses(request)

    config = AgentConfig(model="policy", resources="calc_env")
    recorder = Recorder({"calc": (Clumsy, config)}, calculator)
    recorder.rollout("r1-00000-00", "calc", task())
    trajectory = trajectory_of(recorder)
    run = next(trajectory.executions())
    assert departure_of(trajectory, run, Wordy, config) is not None
    assert departure_of(trajectory, run, Wordy, config, loose=True) is None
    assert departure_of(trajectory, run, Cured, config, loose=True) is not None


@pytest.mark.parametrize("flag", [[], ["--loose"]])
def test_verify_of_what_is_the_same_ends_with_0_loose_or_not(replay: Replay, log: Path, flag: list[str]) -> None:
    """R7."""
    assert replay("verify", "--file", log, *flag)[0] == 0


def test_a_reply_that_was_deleted_is_told_at_its_call_and_the_recording_is_to_blame(replay: Replay, log: Path) -> None:
    """E4, as a user reads it."""
    lines = log.read_bytes().splitlines(keepends=True)
    of_this = [line for line in lines if b'"r1-00000-00"' in line]
    log.write_bytes(b"".join(line for line in lines if line not in of_this or b"tool.replied" not in line))
    code, out, _ = replay("verify", "r1-00000-00", "--file", log)
    told = " ".join(out.split())
    assert code == 1
    assert "departs at call m1_0, event" in told
    assert "the code waits for the reply to this call, and none is recorded" in told
    assert "the recording is not whole" in told
