"""The command line as a user types it: real processes, in a directory of their own."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

DEADLINE_S = 120.0

SLOW_MODEL = '''
"""Answers after a while."""

import asyncio

from components.models.base import Model, ModelCall, ModelConfig
from contracts.responses import Response, ResponseCreateParams, output_message


class SlowConfig(ModelConfig):
    seconds: float


class Slow(Model[SlowConfig]):
    async def responses(self, request: ResponseCreateParams, call: ModelCall) -> Response:
        await asyncio.sleep(self.config.seconds)
        said = output_message("A", item_id="msg")
        return Response(id="r", object="response", created_at=0, model="slow", status="completed", output=[said])
'''

CONFIG = """
solver: {agents: {simple_agent: {model: policy, resources: quiz}}}
quiz: {resources: {mcqa: {}}}
policy: {models: {slow: {seconds: 0.0, pool: {concurrency: 1}}}}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's directory with a model of their own, a config and six tasks."""
    model = tmp_path / "components" / "models" / "slow"
    model.mkdir(parents=True)
    (model / "app.py").write_text(SLOW_MODEL)
    (tmp_path / "main.yaml").write_text(CONFIG)
    task = {
        "responses_create_params": {"input": "Which letter?"},
        "options": [{"A": "this"}, {"B": "that"}],
        "expected_answer": "A",
        "grading_mode": "strict_single_letter_boxed",
    }
    (tmp_path / "tasks.jsonl").write_text(6 * (json.dumps(task) + "\n"))
    return tmp_path


def start(folder: Path, *arguments: str, program: str = "orchestrator") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", program, *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def jetgym(folder: Path, *arguments: str, code: int = 0) -> str:
    """Runs a command to its end; returns its output, or with another exit code its errors."""
    process = start(folder, *arguments)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == code, out + err
    assert "Traceback" not in err
    return err if code == 2 else out


def replay(folder: Path, *arguments: str, code: int = 0) -> str:
    """The same for `replay`."""
    command = [sys.executable, "-P", "-m", "replay", *arguments]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran.stderr if code == 2 else ran.stdout


RESULT_FILES = ("rollouts.jsonl", "failures.jsonl", "metrics.json", "materialized_inputs.jsonl")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_run_writes_its_files_and_they_can_be_rebuilt_from_the_log(project: Path) -> None:
    jetgym(project, "run", "main.yaml", "--input", "tasks.jsonl", "--repeats", "2", "--output", "out")
    rollouts = (project / "out" / "rollouts.jsonl").read_bytes()
    asked = lines(project / "out" / "materialized_inputs.jsonl")
    assert len(asked) == 12
    assert {line["rollout_id"] for line in asked} == {
        line["rollout_id"] for line in lines(project / "out/rollouts.jsonl")
    }
    assert (project / "out" / "config.yaml").exists()
    assert not (project / "out" / "deployment.json").exists()
    written = {name: (project / "out" / name).read_bytes() for name in RESULT_FILES}
    resume = ["run", "main.yaml", "--input", "tasks.jsonl", "--repeats", "2", "--output", "out", "--resume"]
    inputs = written["materialized_inputs.jsonl"]
    del written["metrics.json"]
    for command, damaged, lost in (
        (resume, {"rollouts.jsonl": bytes(4096) + rollouts[4096:-9] + b"\x00\xff}\n"}, inputs[: len(inputs) // 2]),
        (["rebuild", "out"], {"failures.jsonl": b"\xff\n{}\n[", "metrics.json": b"null"}, bytes(4096) + inputs[4096:]),
        (["rebuild", "out"], {"rollouts.jsonl": None, "metrics.json": b'{"run": \xff'}, b""),
        (resume, {"rollouts.jsonl": b"", "failures.jsonl": None, "metrics.json": None}, None),
    ):
        for name, data in {**damaged, "materialized_inputs.jsonl": lost}.items():
            (project / "out" / name).unlink() if data is None else (project / "out" / name).write_bytes(data)
        said = jetgym(project, *command)
        assert {name: (project / "out" / name).read_bytes() for name in written} == written
        assert json.loads((project / "out" / "metrics.json").read_bytes())["run"]["completed"] == 12
        assert re.search(r"materialized_inputs\.jsonl was not .*: it is written anew", said)
        assert "Traceback" not in said
    again = jetgym(project, "run", "main.yaml", "--input", "tasks.jsonl", "--output", "out", code=2)
    assert "holds a run already: go on with it with --resume" in again


def test_ctrl_c_keeps_what_is_finished_and_resume_does_the_rest(project: Path) -> None:
    run = ["run", "main.yaml", "--input", "tasks.jsonl", "--output", "out"]
    process = start(project, *run, "policy.models.slow.seconds=1.0")
    until(lambda: len(lines(project / "out" / "rollouts.jsonl")) >= 1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130, out + err
    resume = "jetgym run main.yaml --input tasks.jsonl --output out policy.models.slow.seconds=1.0 --resume"
    assert "stopped; what is finished is in out. To go on:\n" in out
    assert out.endswith(f"{resume}\n")
    assert "Traceback" not in err
    kept = lines(project / "out" / "rollouts.jsonl")
    assert 1 <= len(kept) < 6
    jetgym(project, *run, "--resume")
    finished = lines(project / "out" / "rollouts.jsonl")
    assert finished[: len(kept)] == kept
    assert len({line["rollout_id"] for line in finished}) == len(finished) == 6


def test_a_resumed_run_refuses_other_tasks(project: Path) -> None:
    run = ["run", "main.yaml", "--input", "tasks.jsonl", "--output", "out"]
    jetgym(project, *run)
    assert "changed since the run began" in jetgym(
        project, *run, "--agent", "solver", "--repeats", "2", "--resume", code=2
    )


def test_a_run_without_a_result_yet_is_not_resumed_in_another_log(project: Path) -> None:
    """Its rollouts would all run again there; nothing is made, and no command that was refused is said to go on."""
    run = ["run", "main.yaml", "--input", "tasks.jsonl", "--output", "out"]
    process = start(project, *run, "policy.models.slow.seconds=60", "++launch.drain_s=0")
    until((project / "out" / "config.yaml").exists)
    until(lambda: json.loads(jetgym(project, "audit", "out", "--json"))["in_flight"] == 6)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=DEADLINE_S)
    changes = {"++log.namespace=foo": "began with 'jetgym'", "++log.partitions=2": "began with 1"}
    for change, error in changes.items():
        refused = start(project, *run, "--resume", change)
        out, err = refused.communicate(timeout=DEADLINE_S)
        assert (refused.returncode, out) == (2, ""), out + err
        assert error in err
    streams = {path.name for path in (project / "out" / "log").rglob("*") if path.name.endswith(("_0", "_1", "_blobs"))}
    assert streams == {"jetgym_0", "jetgym_blobs"}
    up = start(project, "up", "main.yaml", "--output", "other")
    assert up.stdout is not None
    url = next(line for line in up.stdout if line.startswith("ready at ")).split()[2].rstrip(";")
    assert "does not hold the run in out" in jetgym(project, *run, "--url", url, "--resume", code=2)
    up.send_signal(signal.SIGINT)
    up.communicate(timeout=DEADLINE_S)
    jetgym(project, *run, "--resume")
    assert len(lines(project / "out" / "rollouts.jsonl")) == 6


def test_up_keeps_a_deployment_that_runs_and_status_use(project: Path) -> None:
    up = start(project, "up", "main.yaml", "--output", "live")
    assert up.stdout is not None
    ready = next(line for line in up.stdout if line.startswith("ready at "))
    url = ready.split()[2].rstrip(";")
    in_use = jetgym(project, "up", "main.yaml", "--output", "live", code=2)
    assert "is in use by another jetgym" in in_use
    jetgym(project, "run", "--url", url, "--input", "tasks.jsonl", "--output", "one")
    jetgym(project, "run", "main.yaml", "--url", url, "--input", "tasks.jsonl", "--output", "two")
    assert len(lines(project / "one" / "rollouts.jsonl")) == len(lines(project / "two" / "rollouts.jsonl")) == 6
    assert yaml.safe_load((project / "one" / "config.yaml").read_text())["server"]["url"] == url
    assert replay(project, "list", "--run", "one").splitlines()[-1].startswith("6 rollouts, mean reward ")
    for arguments in (["live"], ["--url", url], ["one"], ["two"]):
        said = jetgym(project, "status", *arguments)
        assert "rollouts: 12 requested, 12 ended, 0 in flight" in said
        assert re.search(r"policy\W+0\W+0\W[^a]*models", said)
    other = jetgym(
        project, "run", "main.yaml", "policy.models.slow.seconds=1.0", "--url", url, "--input", "tasks.jsonl", code=2
    )
    assert "is another config: policy.models.slow.seconds is 0.0 there, 1.0 here. Leave CONFIG out" in other
    jetgym(project, "rebuild", "again", "--url", url, "--run", lines(project / "one" / "rollouts.jsonl")[0]["run_id"])
    counted = [json.loads((project / name / "metrics.json").read_bytes())["run"] for name in ("one", "again")]
    assert counted[0]["reward"] == counted[1]["reward"]
    assert (project / "again" / "rollouts.jsonl").read_bytes() == (project / "one" / "rollouts.jsonl").read_bytes()
    written = (project / "two" / "rollouts.jsonl").read_bytes()
    (project / "two" / "rollouts.jsonl").unlink()
    assert json.loads(jetgym(project, "audit", "two", "--json"))["completed"] == 6
    jetgym(project, "rebuild", "two")
    assert (project / "two" / "rollouts.jsonl").read_bytes() == written
    lost = (project / "two" / "materialized_inputs.jsonl").read_text().replace('"rollout_id":"r', '"rollout_id":"x')
    (project / "two" / "materialized_inputs.jsonl").write_text(lost)
    assert "and the one that is there now does not hold x" in jetgym(project, "cancel", "two", code=2)
    up.send_signal(signal.SIGINT)
    _, err = up.communicate(timeout=DEADLINE_S)
    assert (up.returncode, err) == (0, "")
    assert f"no NATS server answers at {url}" in jetgym(project, "audit", "one", code=2)
    assert "live, at rest" in jetgym(project, "status", "live")
    assert "completed, reward" in replay(project, "show", "last", "--run", "one"), "its log is in the directory beside"
    (project / "elsewhere").mkdir()
    (project / "live").rename(project / "elsewhere" / "live")
    away = replay(project, "show", "last", "--run", "one", code=2)
    assert f"no NATS server answers at {url}" in away
    assert away.endswith("with --run and the directory of `jetgym up` (results/d…)\n")
    assert replay(project, "list", "--run", "elsewhere/live").splitlines()[-1].startswith("12 rollouts, ")
    assert "nothing is live in results/" in jetgym(project, "status", code=2)


def test_one_worker_of_a_pool_can_run_elsewhere(project: Path) -> None:
    up = start(project, "up", "main.yaml", "--output", "live")
    assert up.stdout is not None
    url = next(line for line in up.stdout if line.startswith("ready at ")).split()[2].rstrip(";")
    worker = start(project, "worker", "main.yaml", "--instance", "policy", "--url", url)
    assert worker.stdout is not None
    assert json.loads(worker.stdout.readline())["ready"]
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(DEADLINE_S) == 0
    up.send_signal(signal.SIGTERM)
    assert up.wait(DEADLINE_S) == 0
    for process in (up, worker):
        process.communicate()


def test_a_run_says_which_workers_it_waits_for_and_does_not_wait_for_ever(project: Path, server: str) -> None:
    worker = start(project, "worker", "main.yaml", "--instance", "policy", "--url", server)
    assert worker.stdout is not None
    assert json.loads(worker.stdout.readline())["ready"]
    run = ["run", "main.yaml", "--url", server, "--input", "tasks.jsonl", "++launch.start_deadline_s=0.1"]
    said = jetgym(project, *run, code=2)
    assert said.startswith("error: no worker of quiz, solver has come within 0.1 s (launch.start_deadline_s): start")
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=DEADLINE_S)


def test_where_nothing_is_deployed_both_ways_to_workers_are_told(project: Path, server: str) -> None:
    said = jetgym(project, "run", "--url", server, "--input", "tasks.jsonl", "++log.namespace=nobody", code=2)
    assert f"nothing is deployed at {server} in the namespace 'nobody': start it with `jetgym up CONFIG… --url" in said
    assert "started one by one with `jetgym worker`, give their config: `jetgym run CONFIG… --url …`" in said


def test_the_newest_run_is_listed_beside_a_deployment_that_is_live_which_is_told_of(project: Path) -> None:
    jetgym(project, "run", "main.yaml", "--input", "tasks.jsonl", "--limit", "1")
    up = start(project, "up", "main.yaml")
    assert up.stdout is not None
    next(line for line in up.stdout if line.startswith("ready at "))
    (folder,) = (project / "results").glob("d*")
    listing = start(project, "list", program="replay")
    said, told = listing.communicate(timeout=DEADLINE_S)
    assert "1 rollout, " in said
    name = f"results/{folder.name}"
    assert told == f"{name} is live: what runs there is listed with --run {name}\n"
    up.send_signal(signal.SIGINT)
    up.communicate(timeout=DEADLINE_S)


def test_a_start_that_fails_leaves_no_directory_and_hides_no_run(project: Path) -> None:
    jetgym(project, "run", "main.yaml", "--input", "tasks.jsonl", "--limit", "1")
    (run,) = (project / "results").iterdir()
    for verb in (["run", "--input", "tasks.jsonl"], ["up"]):
        said = jetgym(project, verb[0], "main.yaml", *verb[1:], "++server.binary=no/such/server", code=2)
        assert said.startswith("error: ")
    assert list((project / "results").iterdir()) == [run]
    assert replay(project, "list").splitlines()[-1].startswith("1 rollout, ")


def test_a_dead_server_is_told_in_one_line(project: Path) -> None:
    said = jetgym(project, "run", "--url", "nats://127.0.0.1:1", "--input", "tasks.jsonl", code=2)
    assert said.startswith("error: no NATS server answers at nats://127.0.0.1:1")
    assert said.count("\n") == 1


def test_a_model_that_cannot_start_is_told_in_one_line(project: Path) -> None:
    model = project / "components" / "models" / "slow" / "app.py"
    refusing = (
        "\n    async def start(self) -> None:\n        raise ModelError('unavailable', 'the engine is not there')\n"
    )
    text = model.read_text() + refusing
    model.write_text(
        text.replace("from contracts", "from components.models.errors import ModelError\nfrom contracts", 1)
    )
    said = jetgym(project, "run", "main.yaml", "--input", "tasks.jsonl", code=2)
    assert said == "error: worker policy-0: the engine is not there\n"


def test_a_worker_whose_code_is_broken_is_told_with_the_end_of_its_log(project: Path) -> None:
    model = project / "components" / "models" / "slow" / "app.py"
    model.write_text(model.read_text() + "\n    async def start(self) -> None:\n        raise OSError('no weights')\n")
    process = start(project, "run", "main.yaml", "--input", "tasks.jsonl", "++launch.failed_starts=1")
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 2
    assert err.startswith("error: worker policy-0 ended with exit code 1 before it served. Its log results/")
    assert "no weights" in err


def test_new_components_work_and_their_tests_pass(tmp_path: Path) -> None:
    for kind in ("agent", "model", "resources"):
        jetgym(tmp_path, "new", kind, f"my_{kind}")
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "components"]
    tested = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert tested.returncode == 0, tested.stdout
    model = "components/models/my_model/config.yaml"
    jetgym(tmp_path, "run", "components/resources/my_resources/config.yaml", model, "--output", "one")
    assert [line["reward"] for line in lines(tmp_path / "one" / "rollouts.jsonl")] == [0.0] * 5
    tasks = "datasets/my_resources/example.jsonl"
    agent = "components/agents/my_agent/config.yaml"
    wiring = ["~quiz", "my_agent.agents.my_agent.resources=my_resources"]
    environment = "components/resources/my_resources/config.yaml"
    jetgym(
        tmp_path, "run", environment, agent, model, *wiring, "--agent", "my_agent", "--input", tasks, "--output", "two"
    )
    assert [line["turns"] for line in lines(tmp_path / "two" / "rollouts.jsonl")] == [2] * 5


def test_a_cancelled_run_ends_by_itself_and_counts_what_was_cancelled_apart(project: Path) -> None:
    run = ["run", "main.yaml", "--input", "tasks.jsonl", "--output", "out"]
    process = start(project, *run, "policy.models.slow.seconds=600")
    until((project / "out" / "rollouts.jsonl").exists)
    (last,) = [
        line["rollout_id"] for line in lines(project / "out/materialized_inputs.jsonl") if line["task_index"] == 5
    ]
    one = json.loads(jetgym(project, "cancel", "out", "--task", "5", "--json"))
    assert (one["rollouts"], one["ended"]) == ([last], [])
    assert "has no rollout 'nope'" in jetgym(project, "cancel", "out", "--rollout", "nope", code=2)
    assert "had not ended, and will end as cancelled" in jetgym(project, "cancel", "out", "--reason", "bad idea")
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1, out + err
    failed = lines(project / "out" / "failures.jsonl")
    assert len(failed) == 6
    assert {line["outcome"] for line in failed} == {"cancelled"}
    reasons = {line["rollout_id"]: line["error"]["message"] for line in failed}
    assert (reasons.pop(last), set(reasons.values())) == ("cancelled by jetgym cancel", {"bad idea"})
    metrics = json.loads((project / "out" / "metrics.json").read_text())["run"]
    assert (metrics["completed"], metrics["failed"], metrics["cancelled"]) == (0, 0, 6)
    assert "0 completed, 0 failed, 6 cancelled in" in out
    audit = json.loads(jetgym(project, "audit", "out", "--json"))
    assert (audit["balanced"], audit["cancelled"]) == (True, 6)  # calls that nobody waits for may end with the workers
    before = (project / "out" / "failures.jsonl").read_bytes()
    jetgym(project, "rebuild", "out")
    assert (project / "out" / "failures.jsonl").read_bytes() == before
    assert "all of its rollouts have ended, nothing is left to cancel" in jetgym(project, "cancel", "out")
