"""Code that spins or ends its process: it costs its own rollout a verdict, and no other."""

import faulthandler
import io
import json
from pathlib import Path

import pytest

from components.agents.base import AgentConfig
from components.loading import INSTALLED
from replay.apart import Channel, place_in
from replay.file_source import export_lines
from tests.unit.replay.examples import GOLDEN, OneTurn, calculator, task
from tests.unit.replay.recorder import Recorder
from tests.unit.replay.test_cli import Replay, replay

__all__ = ["replay"]

AGENT = """
import os
import re
import signal
import sys
import time

from components.agents.base import Agent, AgentConfig
from contracts.responses import Response, ResponseCreateParams


class Wild(Agent[AgentConfig]):
    async def responses(self, request: ResponseCreateParams) -> Response:
        text = request.to_json().decode()
        if "spins" in text:
            while True:
                try:
                    time.sleep(0.01)  # spins
                except BaseException:
                    pass
        if "holds the interpreter" in text:
            re.match(r"(a+)+$", "a" * 60 + "b")  # holds the interpreter
        if "ends its process" in text:
            os._exit(0)  # ends its process
        if "is killed" in text:
            os.kill(os.getpid(), signal.SIGKILL)
        if "is broken" in text:
            os.abort()  # is broken
        if "exits" in text:
            sys.exit(3)
        if "asks at the terminal" in text:
            breakpoint()
        return await self.model.responses(request)
"""
RESOURCES = """
import asyncio
import time

from components.resources import Resources, TaskFields, tool


class Fields(TaskFields):
    expected_count: int


class Wild(Resources):
    def seed_session(self, task: Fields) -> dict:
        return {"how": task.expected_count, "value": 1}

    @tool
    def increment_counter(self, session: dict, count: int) -> str:
        "Adds."
        while session["how"] == 1: pass  # spins
        if session["how"] == 2:
            time.sleep(60)  # sleeps
        session["value"] += count
        return "ok"

    @tool
    async def get_counter_value(self, session: dict) -> str:
        "Reads."
        if session["how"] == 3:
            await asyncio.gather(asyncio.sleep(60), asyncio.sleep(60))  # waits
        return str(session["value"])

    async def verify(self, session: dict) -> float:
        if session["how"] == 4:
            await asyncio.sleep(60)  # awaits
        if session["how"] == 5:
            time.sleep(60)  # holds
        return 1.0
"""


def line_of(text: str, code: str = AGENT) -> int:
    return next(number for number, line in enumerate(code.splitlines(), 1) if line.endswith(f"# {text}"))


def record(folder: Path, *texts: str) -> Path:
    """Rollouts of an agent that asks once, with the wild one in its place; each text is of one task."""
    app = folder / "components" / "agents" / "wild" / "app.py"
    app.parent.mkdir(parents=True)
    app.write_text(AGENT)
    recorder = Recorder({"mine": (OneTurn, AgentConfig(model="policy", resources="calc_env"))}, calculator)
    recorder.deployment({"mine": "wild"}, {"mine": "x"})
    for index, text in enumerate(texts):
        recorder.rollout(f"r1-{index:05d}-00", "mine", task(text), index=index)
    (folder / "log.jsonl").write_bytes(b"\n".join(export_lines(recorder.log, {})))
    return app


def test_verify_says_of_each_rollout_what_its_code_does_to_its_process(replay: Replay, tmp_path: Path) -> None:
    wild = ("spins", "holds the interpreter", "ends its process", "is killed", "is broken")
    app = record(tmp_path, "a", *wild, "exits", "asks at the terminal")
    code, out, _ = replay("verify", "--file", "log.jsonl", "--deadline", "3", "--jobs", "2", "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert code == 2
    assert [verdict["verdict"] for verdict in found] == ["same", *["could not run"] * 5, "differs", "same"]
    spins, holds, ends, killed, broken = (verdict["reason"] for verdict in found[1:6])
    late = "its code did not come to an end within its deadline at {}:{}: is there a loop that never awaits?"
    assert spins == late.format(app, line_of("spins"))
    assert holds == late.format(app, line_of("holds the interpreter"))
    assert ends == f"its code ended its process with exit code 0 at {app}:{line_of('ends its process')}"
    assert killed == "its process was ended by SIGKILL"
    assert broken == f"its process was ended by SIGABRT at {app}:{line_of('is broken')}"
    assert found[6]["departure"]["made"] == "it ends with SystemExit(3)"
    recorded = [
        [verdict[name] for name in ("agent", "implementation", "calls", "ended", "reward")] for verdict in found
    ]
    assert recorded == [recorded[0]] * 8, "whose it is does not depend on what its code does"
    assert recorded[0][:2] == ["mine", "wild"]


def test_verify_counts_them_and_goes_on(replay: Replay, tmp_path: Path) -> None:
    record(tmp_path, "ends its process", "a", "ends its process")
    code, out, err = replay("verify", "--file", "log.jsonl")
    assert code == 2
    assert out.splitlines()[0] == "3 rollouts: 1 same, 2 could not run"
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("what", "verb"),
    [
        ("ends its process", ["whatif", "r1-00000-00", "--at", "end"]),
        ("spins", ["lint", "mine"]),
        ("spins", ["fork", "r1-00000-00", "--at", "end"]),
    ],
)
def test_other_verbs_that_run_an_agent_end_with_2_and_name_the_line(
    replay: Replay, tmp_path: Path, what: str, verb: list[str]
) -> None:
    app = record(tmp_path, what)
    (tmp_path / "config.yaml").write_text("mine: {agents: {wild: {model: policy, resources: calc_env}}}")
    code, _, err = replay(*verb, "--file", "log.jsonl", "--config", "config.yaml", "--deadline", "3")
    assert code == 2
    assert err.startswith("error: rollout r1-00000-00: its code ")
    assert f"{app}:{line_of(what)}" in err


@pytest.mark.parametrize(
    ("verb", "ways"),
    [
        (["reverify", "--dry-run"], {1: "spins", 4: "awaits", 5: "holds"}),
        (["retool"], {2: "sleeps", 3: "waits"}),
    ],
    ids=["reverify", "retool"],
)
def test_what_a_verifier_and_tools_do_beyond_the_deadline_is_given_up_at_their_line_and_no_other_rollout_is(
    replay: Replay, tmp_path: Path, verb: list[str], ways: dict[int, str]
) -> None:
    """Plain and `async`, whether it computes or waits, and while a session is made again."""
    app = tmp_path / "components" / "resources" / "wild" / "app.py"
    app.parent.mkdir(parents=True)
    app.write_text(RESOURCES)
    (tmp_path / "config.yaml").write_text("counter: {resources: {wild: {}}}")
    recorded = (GOLDEN / "solver.jsonl").read_bytes().splitlines()
    deployment = [line for line in recorded if b'"rolloutid"' not in line]
    rollout = b"\n".join(line for line in recorded if b'"rolloutid"' in line)
    lines = [
        rollout.replace(b"-00000-00", b"-%05d-00" % way).replace(b'"expected_count":8', b'"expected_count":%d' % way)
        for way in (*ways, 8)
    ]
    (tmp_path / "log.jsonl").write_bytes(b"\n".join([*deployment, *lines]))
    options = ["--file", "log.jsonl", "--config", "config.yaml", "--deadline", "1"]
    code, out, _ = replay(*verb, *options)
    assert code == 2
    assert "rollout …" not in out
    told = [json.loads(line) for line in replay(*verb, *options, "--json")[1].splitlines()]
    given_up = {line["rollout_id"][-8:-3]: line["reason"] for line in told if line["verdict"] == "could not run"}
    assert {way for way, reason in given_up.items() if "deadline" in reason} == {f"{way:05d}" for way in ways}
    out = out.replace("\n", "")
    for what in ways.values():
        assert f"its code did not come to an end within its deadline at {app}:{line_of(what, RESOURCES)}: " in out
    assert ("1 the same" in out) if verb[0] == "reverify" else ("counter get_counter_value  1 call, 1 the same" in out)


def test_code_has_more_time_for_a_long_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda seconds, **_: given.append(seconds))
    for events in (20, 24_000):
        with Channel(io.BytesIO(), io.BytesIO(), 2).limited(30, events):
            pass
    assert given == [pytest.approx(30, abs=0.1), 78]


@pytest.mark.parametrize("root", [str(INSTALLED), "/home/me/project/.jetgym/venvs/0f3a/jetgym"])
def test_the_line_to_blame_is_of_a_component_and_not_of_what_it_is_written_with(root: str) -> None:
    own = "/home/me/project/components/resources/a/app.py"
    runtime = f'  File "{root}/components/resources/runtime.py", line 9 in _run\n'
    verifier = f'  File "{root}/components/resources/mcqa/app.py", line 3 in verify\n'
    stacks = [
        f'Thread 0x1 (most recent call first):\n  File "{root}/components/resources/threads.py", line 68 in _work\n',
        f'Thread 0x2 (most recent call first):\n  File "{own}", line 7 in beat\n',
        f"Thread 0x3 (most recent call first):\n{runtime}{verifier}",
    ]
    report = "Timeout (0:00:01)!\n" + "\n".join(stacks)
    assert place_in(report) == f"{root}/components/resources/mcqa/app.py:3"
    assert place_in(report.replace("mcqa/", "")) == f"{own}:7"
    assert place_in(report.replace("Thread 0x2", "Current thread 0x2")) == f"{own}:7"
