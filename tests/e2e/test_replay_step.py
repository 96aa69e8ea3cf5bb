"""`replay step` as a user runs it: sessions out of a file, and agents that need packages of their own."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

from replay.file_source import export_lines
from tests.unit.replay.examples import recorded_run

ROOT = Path(__file__).parents[2]
DEADLINE_S = 120.0
NEEDY = """
from only_there import NAME

from components.agents.simple_agent.app import SimpleAgent
from contracts.responses import Response, ResponseCreateParams


class Needy(SimpleAgent):
    async def responses(self, request: ResponseCreateParams) -> Response:
        named = NAME
        return await super().responses(request)
"""


def replay(folder: Path, session: str, *arguments: str, **environment: str) -> tuple[int, str]:
    command = [sys.executable, "-P", "-m", "replay", *arguments]
    ran = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | environment,
        input=session,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    return ran.returncode, ran.stdout + ran.stderr


def step(folder: Path, session: str, *arguments: str) -> tuple[int, str]:
    (folder / "log.jsonl").write_bytes(b"\n".join(export_lines(recorded_run(1).log, {})))
    return replay(folder, session, "step", "last", "--file", "log.jsonl", *arguments)


def test_a_session_out_of_a_file_goes_forwards_and_back(tmp_path: Path) -> None:
    code, said = step(tmp_path, "next\nlocals\nback\ngoto turn:2\nlist\ncontinue\n")
    assert code == 0
    assert [line.split()[0] for line in said.splitlines() if line.startswith("[")] == [
        "[1/6]",
        "[2/6]",
        "[1/6]",
        "[4/6]",
        "[6/6]",
    ]
    assert "request = ResponseCreateParams(" in said
    assert "the code has ended: reward 1" in said


def test_an_agent_that_needs_packages_is_stepped_through_in_its_venv(tmp_path: Path) -> None:
    """Which has JetGym's core and no command line."""
    app = tmp_path / "components" / "agents" / "needy" / "app.py"
    app.parent.mkdir(parents=True)
    app.write_text(NEEDY)
    app.with_name("requirements.txt").write_text("only-there\n")
    (tmp_path / "config.yaml").write_text("calc: {agents: {needy: {model: policy, resources: calc_env}}}")
    folder = tmp_path / ".jetgym" / "venvs" / "one"
    venv.create(folder, with_pip=False)
    (folder / "jetgym.json").write_text(json.dumps({"component": "agents/needy", "core": []}))
    (packages,) = (folder / "lib").glob("python*/site-packages")
    (packages / "only_there.py").write_text("NAME = 'there alone'")
    for name in ("contracts", "bus", "components"):
        (packages / name).symlink_to(ROOT / name)
    code, said = step(tmp_path, "next\nlocals\n", "--config", "config.yaml")
    assert code == 0, said
    assert "[2/6]" in said
    code, said = step(tmp_path, "print NAME\n", "--config", "config.yaml", "--at", "m_0", "--json")
    assert code == 0, said
    assert json.loads(said.splitlines()[0])["call_key"] == "m_0"
    assert replay(tmp_path, "", "import", "log.jsonl", "--output", "results/old")[0] == 0
    words = ("step", "last", "--run", "results/old", "--config", "config.yaml", "--at", "m_1")
    code, said = replay(tmp_path, "", *words, PATH=os.defpath)  # a log's server is not in the agent's venv either
    assert code == 0, said
    assert " m_1, " in said
