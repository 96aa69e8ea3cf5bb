"""What the command line says when something is wrong: one clear line each, exit code 2, no traceback."""

import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.cli import COMMANDS, main

CONFIG = """
solver:
  agents:
    simple_agent:
      model: policy
      resources: quiz
quiz:
  resources:
    mcqa: {}
policy:
  models:
    openai_model: {base_url: "http://127.0.0.1:1/v1", model: m}
"""
TASK = json.dumps({"responses_create_params": {"input": "x"}, "expected_answer": "A"})

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def jetgym(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command line in a directory with a config and a file of tasks; returns exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "main.yaml").write_text(CONFIG)
    (tmp_path / "tasks.jsonl").write_text(TASK + "\n")

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["jetgym", *arguments])
        try:
            code: object = main()
        except SystemExit as end:
            code = end.code
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        assert isinstance(code, int)
        return code, captured.out, captured.err

    return run


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "nope.yaml"], "there is no config 'nope.yaml'"),
        (["run", "main.yaml"], "no agent of this config has datasets: name a file of tasks with --input"),
        (["run", "main.yaml", "--input", "nope.jsonl"], "there is no file 'nope.jsonl' of tasks"),
        (["run", "main.yaml", "--input", "tasks.jsonl", "--agent", "solvr"], "there is no agent 'solvr'; did you mean"),
        (["run", "main.yaml", "--limit", "0"], "command line: limit: must be at least 1"),
        (["run", "main.yaml", "++retry.on=[cancelled]"], "retry.on.0: must be 'bad_request', "),
        (["run", "main.yaml", "++limits=3"], "command line: limits: unknown key; did you mean 'limit'?"),
        (["run", "main.yaml", "++policy.models.openai_model.api_key=${nokey}"], "${nokey} cannot be resolved"),
        (["run", "main.yaml", "++policy.models.openai_model.model=???"], "openai_model.model: needs a value"),
        (
            ["run", "main.yaml", "~policy.models.openai_model.base_url"],
            "openai_model.base_url: is missing, and is needed",
        ),
        (["run", "--input", "tasks.jsonl"], "name a config, or the --url of a running deployment"),
        (["run", "main.yaml", "--input", "tasks.jsonl", "--resume"], "name its directory with --output"),
        (["run", "main.yaml", "--input", "tasks.jsonl", "--output", "x", "--resume"], "x holds no run to resume"),
        (["up", "main.yaml", "++server.binary=/nope"], "/nope"),
        (["status"], "nothing is live in results/"),
        (
            ["worker", "main.yaml", "--instance", "polici", "--url", "nats://x"],
            "no instance 'polici'; did you mean 'policy'?",
        ),
        (["validate", "main.yaml", "solver.agents.simple_agent.model=quiz"], "is of kind resources, models is wanted"),
        (["datasets", "check", "nope.jsonl"], "nope.jsonl cannot be read: No such file or directory"),
        (["datasets", "check", "/dev/null"], "/dev/null holds no task: a task is a line with a JSON object"),
        (["rebuild", "nope"], "nope has no log/"),
        (["audit", "nope"], "there is no directory nope, nor results/nope: name a run, or its log with --url"),
        (["dead", "show", "0-1"], "name the directory of a run, or the server that has its log with --url"),
        (["dead", "requeue", "."], "name dead letters by their IDs, which `jetgym dead list` shows, or --all, and not"),
        (["dead", "drop", ".", "x"], "'x' is no ID of a dead letter, like 0-57"),
        (["log", "prune", "."], "say which runs are to go: --run ID, or --older-than and --keep, and not both"),
        (["log", "prune", ".", "--run", "r", "--json"], "--json does not ask: say --yes with it"),
        (["log", "prune", ".", "--older-than", "week"], "--older-than 'week' is no time: say 7d, 12h or 30m"),
        (["audit", "--run", "r"], "name the directory of a run, or the server that has its log with --url"),
        (["audit", "."], ". has no log/: name the server that has its log with --url"),
        (["new", "agent", "Two Words"], "cannot be a component's name"),
        (["new", "resources", "mcqa"], "exists already"),
        (["new", "resources", "class"], "it is a keyword of Python: choose another name"),
    ],
)
def test_what_a_user_can_mend_is_one_clear_line(jetgym: Run, arguments: list[str], said: str) -> None:
    code, _, errors = jetgym(*arguments)
    assert code == 2
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    assert said in errors


def test_a_port_in_use_is_told(jetgym: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, errors = jetgym("up", "main.yaml", f"++server.port={port}")
    assert code == 2
    assert errors == f"error: port {port} on 127.0.0.1 is in use: stop what listens there, or leave the port out\n"


def test_bad_lines_are_told_one_by_one_and_nothing_is_started(jetgym: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{\n{"a": 1}\n' + TASK + "\n")
    code, _, errors = jetgym("run", "main.yaml", "--input", "bad.jsonl", "--output", "out")
    assert code == 2
    first, second, last = errors.splitlines()
    assert first.startswith("bad.jsonl:1: ")
    assert second == "bad.jsonl:2: responses_create_params: is missing; there are: a"
    assert last == "error: 2 bad lines: mend them, or leave them out with --skip-bad-lines"
    assert not (tmp_path / "out").exists()


def test_a_secret_is_in_no_error(jetgym: Run, tmp_path: Path) -> None:
    (tmp_path / "env.yaml").write_text("key: sk-abcdef\n")
    code, _, errors = jetgym("validate", "main.yaml", "solver.agents.simple_agent.model=${key}")
    assert code == 2
    assert "sk-abcdef" not in errors
    assert "there is no instance '<redacted>'" in errors


def test_validate_shows_instances_references_and_the_resolved_config(jetgym: Run) -> None:
    code, output, _ = jetgym("validate", "main.yaml", "++policy.models.openai_model.api_key=sk-abcdef")
    assert code == 0
    assert "model: policy (models)" in output
    assert "max_turns: " in output
    assert "sk-abcdef" not in output


def test_validate_can_print_the_yaml_alone(jetgym: Run, tmp_path: Path) -> None:
    _, output, _ = jetgym("validate", "main.yaml", "--yaml")
    (tmp_path / "again.yaml").write_text(output)
    assert jetgym("validate", "again.yaml", "--yaml") == (0, output, "")


def test_datasets_check_says_what_the_tasks_hold(jetgym: Run) -> None:
    code, output, _ = jetgym("datasets", "check", "tasks.jsonl")
    assert code == 0
    assert output.splitlines()[0] == "tasks.jsonl: 1 task, 0 of them with tools of their own"
    assert "  expected_answer" in output


@pytest.mark.parametrize(
    "command", [[], ["run"], ["up"], ["new"], ["datasets"], ["worker"], ["audit"], ["dead"], ["log"], ["log", "usage"]]
)
def test_without_arguments_a_command_shows_its_help(jetgym: Run, command: list[str]) -> None:
    assert "Usage: jetgym" in jetgym(*command)[1]


def test_the_help_names_every_command(jetgym: Run) -> None:
    code, output, _ = jetgym("--help")
    assert code == 0
    for name in COMMANDS:
        assert f" {name} " in output


def test_an_unknown_command_is_refused(jetgym: Run) -> None:
    code, _, errors = jetgym("rnu")
    assert code == 2
    assert "No such command" in errors
