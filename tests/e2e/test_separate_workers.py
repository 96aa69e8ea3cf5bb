"""A deployment as containers make it: a server, a process a pool, and a run that comes later."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

CONFIG = """
log: {namespace: apart}
solver: {agents: {simple_agent: {model: policy, resources: counter}}}
counter: {resources: {example_session_state_mgmt: {}}}
policy:
  models:
    scripted_model:
      turns:
        - calls: [{name: increment_counter, arguments: {count: 2}}, {name: increment_counter, arguments: {count: 3}}]
        - text: done
"""
TASKS = [{"responses_create_params": {"input": "Add 2, then 3."}, "expected_count": count} for count in (5, 6)]


@pytest.fixture
def project(tmp_path: Path, server: str) -> Iterator[tuple[Path, str]]:
    """A folder with a config, and its three pools, started one by one without an orchestrator."""
    (tmp_path / "main.yaml").write_text(CONFIG)
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in TASKS))
    with ExitStack() as stack:
        workers = []
        for instance in ("policy", "solver", "counter"):
            command = [sys.executable, "-P", "-m", "orchestrator", "worker", "main.yaml", "--instance", instance]
            worker = stack.enter_context(
                subprocess.Popen(
                    [*command, "--url", server], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
                )
            )
            stack.callback(worker.terminate)
            workers.append(worker)
        for worker in workers:
            assert worker.stdout is not None
            assert json.loads(worker.stdout.readline())["ready"]
        yield tmp_path, server


def test_workers_that_were_started_one_by_one_serve_a_run(project: tuple[Path, str]) -> None:
    folder, url = project
    blind = [sys.executable, "-P", "-m", "orchestrator", "run", "--url", url, "++log.namespace=apart"]
    refused = subprocess.run(blind, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"error: nothing is deployed at {url} in the namespace 'apart': start it with ")
    assert refused.stderr.endswith("give their config: `jetgym run CONFIG… --url …`\n")
    command = [sys.executable, "-P", "-m", "orchestrator", "run", "main.yaml", "--input", "tasks.jsonl"]
    run = subprocess.run(
        [*command, "--url", url, "--output", "out"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    lines = [json.loads(line) for line in (folder / "out" / "rollouts.jsonl").read_text().splitlines()]
    assert {line["task_index"]: line["reward"] for line in lines} == {0: 1.0, 1: 0.0}
    assert all(line["tool_calls"] == 2 for line in lines)
