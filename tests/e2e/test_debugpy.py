"""`replay step` under an editor's debugger: breakpoints in the agent's code, for as long as one likes."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from replay.file_source import export_lines
from tests.e2e.dap import attached
from tests.unit.replay.examples import recorded_run

pytest.importorskip("debugpy", reason="debugpy is not installed")

AGENT = """
from components.agents.simple_agent.app import SimpleAgent
from contracts.responses import Response, ResponseCreateParams


class Mine(SimpleAgent):
    async def responses(self, request: ResponseCreateParams) -> Response:
        counted = len(request.input)  # first
        breakpoint()
        reply = await super().responses(request)  # second
        return reply  # third
"""
SESSION = "next\ngoto end\nback 2\nnext\nquit\n"


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(AGENT.splitlines(), 1) if line.endswith(f"# {text}"))


def test_a_debugger_stops_in_the_steps_that_reach_a_line_and_nowhere_else(tmp_path: Path) -> None:
    """Not where the code is run once more: before the session, and to go back. What is evaluated may take a thread."""
    app = tmp_path / "components" / "agents" / "mine" / "app.py"
    app.parent.mkdir(parents=True)
    app.write_text(AGENT)
    (tmp_path / "log.jsonl").write_bytes(b"\n".join(export_lines(recorded_run(1).log, {})))
    (tmp_path / "config.yaml").write_text("calc: {agents: {mine: {model: policy, resources: calc_env}}}")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    debugpy = ["-m", "debugpy", "--listen", f"127.0.0.1:{port}", "--wait-for-client"]
    step = ["-m", "replay", "step", "last", "--file", "log.jsonl", "--config", "config.yaml"]
    command = [sys.executable, "-P", "-Xfrozen_modules=off", *debugpy, *step]
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(SESSION)
        process.stdin.close()
        met = []
        with attached(port) as debugger:
            debugger.stop_at(str(app), line_of("first"), line_of("third"))
            debugger.ask("configurationDone")
            for _ in range(4):
                thread, frame = debugger.stopped()
                met.append(frame["line"])
                debugger.ask("evaluate", expression="counted = 41", frameId=frame["id"], context="repl")
                value = debugger.ask("evaluate", expression="counted + 1", frameId=frame["id"])["result"]
                assert (frame["source"]["path"], value) == (str(app), "42")
                debugger.ask("continue", threadId=thread)
            debugger.until("terminated")
            debugger.send("disconnect")
        said = process.stdout.read()
    stands = met.pop(1)
    assert stands in (line_of("first") + 1, line_of("second"))  # at `breakpoint()`, or at what comes next
    assert met == [line_of("first"), line_of("third"), line_of("third")]
    assert process.returncode == 0
    assert "the code has ended: reward 1" in said
