"""Promises of a run that only a whole run can break: secrets stay out of it, finished work stays in it."""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

CONFIG = """
solver: {agents: {simple_agent: {model: policy, resources: quiz}}}
quiz: {resources: {mcqa: {}}}
policy: {models: {scripted_model: {turns: [{text: '\\boxed{A}'}]}}}
"""
TASK = {
    "responses_create_params": {"input": "Which letter?"},
    "options": [{"A": "this"}, {"B": "that"}],
    "expected_answer": "A",
    "grading_mode": "strict_single_letter_boxed",
}
SECRETS = ["sk-LEAK-extra-123456", "sk-LEAK-header-123456", "sk-LEAK-key-123456", "LEAK-password-99"]
HOSTED = """
extra: {models: {chat_model: {base_url: 'http://127.0.0.1:PORT/v1', model: m, extra_body: {one: '${vars.extra}'}}}}
h: {models: {chat_model: {base_url: 'http://127.0.0.1:PORT/v1', model: m, headers: {Authorization: '${header_key}'}}}}
keyed: {models: {openai_model: {base_url: 'http://127.0.0.1:PORT/v1', model: m, api_key: '${hosted_key}'}}}
password: {models: {openai_model: {base_url: 'http://user:LEAK-password-99@127.0.0.1:PORT/v1', model: m}}}
vars: {extra: '${extra_key}'}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "main.yaml").write_text(CONFIG)
    (tmp_path / "tasks.jsonl").write_text(3 * (json.dumps(TASK) + "\n"))
    return tmp_path


def jetgym(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "orchestrator", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


class Engine(BaseHTTPRequestHandler):
    """Lets models start."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"object":"list","data":[{"id":"m","object":"model"}]}')


@pytest.fixture
def engine() -> Iterator[int]:
    """The port of an engine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Engine) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.mark.parametrize("there", [True, False])
def test_no_secret_is_in_anything_that_a_run_writes_or_says(project: Path, engine: int, there: bool) -> None:
    """Where the engines are there, and the log is kept, and where they refuse, so that the run does not start."""
    (project / "hosted.yaml").write_text(HOSTED.replace("PORT", str(engine) if there else "1"))
    (project / "env.yaml").write_text(f"extra_key: {SECRETS[0]}\nheader_key: {SECRETS[1]}\nhosted_key: {SECRETS[2]}\n")
    said = jetgym(project, "validate", "main.yaml", "hosted.yaml")
    ran = jetgym(project, "run", "main.yaml", "hosted.yaml", "--input", "tasks.jsonl", "--output", "out")
    assert ran.returncode == (0 if there else 2), ran.stderr
    written = [path for path in (project / "out").rglob("*") if path.is_file()]
    assert any(path.suffix == (".blk" if there else ".log") for path in written)
    for secret in SECRETS:
        assert secret not in said.stdout + said.stderr + ran.stdout + ran.stderr
        assert not [path for path in written if secret.encode() in path.read_bytes()]


def test_a_resume_without_the_run_s_log_keeps_the_results_and_says_why(project: Path) -> None:
    run = ("run", "main.yaml", "--input", "tasks.jsonl", "--output", "out")
    assert jetgym(project, *run).returncode == 0
    results = (project / "out" / "rollouts.jsonl").read_bytes()
    shutil.rmtree(project / "out" / "log")
    again = jetgym(project, *run, "--resume")
    assert again.returncode == 2
    assert "does not hold the run in out" in " ".join(again.stderr.split())
    assert (project / "out" / "rollouts.jsonl").read_bytes() == results


def test_a_run_without_a_reward_is_no_success_and_skipped_lines_are_counted(project: Path) -> None:
    with (project / "tasks.jsonl").open("a") as file:
        file.write("{}\n")
    failing = ("policy.models.scripted_model.turns=[{error: context_length}]", "--skip-bad-lines")
    ran = jetgym(project, "run", "main.yaml", *failing, "--input", "tasks.jsonl", "--output", "out")
    assert ran.returncode == 1, ran.stderr
    assert "3 failed with context_length, one of them:" in ran.stdout
    assert "1 bad line of the input skipped" in ran.stdout
    metrics = json.loads((project / "out" / "metrics.json").read_text())
    assert metrics["run"]["skipped_lines"] == 1
    assert metrics["run"]["reward"]["mean"] is None
    assert (project / "out" / "rollouts.jsonl").read_text() == ""
    failures = (project / "out" / "failures.jsonl").read_text().splitlines()
    assert len(failures) == 3
    assert all("reward" not in json.loads(line) for line in failures)


@pytest.mark.parametrize("url", ["::::", "nats://", "nats://h:99999", "http://127.0.0.1:1", ""])
def test_a_url_that_is_none_is_told_in_one_line(project: Path, url: str) -> None:
    ran = jetgym(project, "run", "main.yaml", "--input", "tasks.jsonl", "--url", url)
    assert ran.returncode == 2
    assert len([line for line in ran.stderr.splitlines() if line]) == 1, ran.stderr


@pytest.mark.parametrize(
    ("code", "told"), [("def oops(:\n", "syntax error at"), ("import nothing_like_this\n", "ModuleNotFoundError")]
)
def test_a_component_that_cannot_be_imported_is_told_with_its_line(project: Path, code: str, told: str) -> None:
    folder = project / "components" / "resources" / "quiz"
    folder.mkdir(parents=True)
    (folder / "app.py").write_text(code)
    said = jetgym(project, "validate", "main.yaml", "~quiz.resources.mcqa", "++quiz.resources.quiz={}")
    assert said.returncode == 2
    assert told in said.stderr
    assert "app.py:1" in said.stderr
