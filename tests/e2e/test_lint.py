"""`replay lint`: what is not deterministic in an agent's code, by its line. E2, from the author's side."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from replay.file_source import export_lines
from tests.unit.replay.examples import recorded_run

AGENT = """
import random

from components.agents.base import Agent, AgentConfig
from contracts.responses import Response, ResponseCreateParams

SEEN = []


class Shaky(Agent[AgentConfig]):
    async def responses(self, request: ResponseCreateParams) -> Response:
        {line}
        first = await self.model.responses(request.model_copy(update={{"metadata": {{"x": str(x)}}}}))
        return first
"""
LINE = next(number for number, text in enumerate(AGENT.splitlines(), start=1) if "{line}" in text)
CALL = LINE + 1
DEADLINE_S = 120.0


def lint(folder: Path, line: str, agent: str = "calc") -> tuple[int, dict[str, Any]]:
    """Records the calculator's rollouts, and lints an agent with this line in their place."""
    app = folder / "components" / "agents" / "shaky" / "app.py"
    app.parent.mkdir(parents=True)
    app.write_text(AGENT.format(line=line))
    (folder / "log.jsonl").write_bytes(b"\n".join(export_lines(recorded_run(2).log, {})))
    (folder / "config.yaml").write_text("calc: {agents: {shaky: {model: policy, resources: calc_env}}}")
    command = [sys.executable, "-P", "-m", "replay", "lint", agent, "--file", "log.jsonl", "--config", "config.yaml"]
    command += ["--orders", "2", "-n", "2", "--json"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    return ran.returncode, json.loads(ran.stdout) if ran.stdout else {"error": ran.stderr}


@pytest.mark.parametrize(
    ("line", "why", "suspect"),
    [
        ("x = list({'apple', 'pear', 'plum', 'fig', 'quince'})", "it differs with the hash seed", None),
        ("x = random.random()", "it differs from one run to the next in one process", "random.random"),
        ("SEEN.append(1); x = len(SEEN)", "it differs from one run to the next in one process", None),
    ],
)
def test_what_is_not_deterministic_is_named_with_file_and_line(
    tmp_path: Path, line: str, why: str, suspect: str | None
) -> None:
    code, found = lint(tmp_path, line)
    assert code == 1, found
    (finding,) = found["findings"]
    assert (Path(finding["file"]).name, finding["line"], finding["call_key"]) == ("app.py", CALL, "m_0")
    assert finding["why"].startswith(why)
    assert finding["field"] == "data.request.metadata.x"
    told = [(each["what"], each["line"]) for each in found["suspects"]]
    assert told == ([(suspect, LINE)] if suspect else [])


def test_e2_what_follows_from_the_log_is_always_the_same(tmp_path: Path) -> None:
    line = "x = sorted({'apple', 'pear'}), self.random().random(), self.now(), self.uuid()"
    code, found = lint(tmp_path, line)
    assert code == 0, found
    assert (found["findings"], found["suspects"], found["rollouts"]) == ([], [], 2)


def test_an_agent_without_a_rollout_could_not_run(tmp_path: Path) -> None:
    """R7."""
    code, found = lint(tmp_path, "x = 1", agent="nobody")
    assert code == 2
    assert "no rollout of agent 'nobody' is recorded" in found["error"]
