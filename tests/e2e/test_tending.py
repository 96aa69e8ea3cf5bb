"""The commands that look after a log, on real runs: while a run goes on, after its end, and at a URL."""

import asyncio
import json
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bus import DeadLetter
from bus.opening import open_log
from bus.run_folder import run_id
from contracts.deployments import RunStarted
from contracts.ids import ROOT_CALL
from tests.e2e.test_command_line import CONFIG, DEADLINE_S, SLOW_MODEL, jetgym, lines, start, until

RUN = ["run", "main.yaml", "--input", "tasks.jsonl"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's directory with a model that takes its time, a config and six tasks."""
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


def said(folder: Path, *arguments: str, code: int = 0) -> Any:
    """What a command prints with --json."""
    (line,) = jetgym(folder, *arguments, "--json", code=code).splitlines()
    return json.loads(line)


WAITING = """
        while Path("hold").exists() and Path("answered").exists():
            await asyncio.sleep(0.05)
        Path("answered").touch()
"""
"""Answers once, and then no more while it is held."""


def changed(model: Path, does: str) -> None:
    """Lets the model do this before it answers."""
    text = model.read_text().replace("import asyncio\n", "import asyncio\nfrom pathlib import Path\n")
    text = text.replace("from contracts", "from components.models.errors import ModelError\nfrom contracts", 1)
    at = "        await asyncio.sleep(self.config.seconds)\n"
    model.write_text(text.replace(at, does[1:] + at))


def test_a_run_is_audited_while_it_goes_on_when_it_was_stopped_and_when_it_is_over(project: Path) -> None:
    changed(project / "components" / "models" / "slow" / "app.py", WAITING)
    (project / "hold").touch()
    process = start(project, *RUN, "--output", "out", "--concurrency", "2", "++launch.drain_s=1")
    until((project / "answered").exists)
    live = {"completed": 0, "in_flight": 0}
    while not live["completed"] or not live["in_flight"]:
        live = said(project, "audit", "out")
        assert live["balanced"]
    assert live["requested"] == live["completed"] + live["in_flight"]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=DEADLINE_S)
    stopped = said(project, "audit", "out")
    assert stopped["balanced"]
    assert stopped["requested"] + stopped["not_yet_asked"] == stopped["planned"] == 6
    assert stopped["in_flight"] >= 1
    (project / "hold").unlink()
    jetgym(project, *RUN, "--output", "out", "--resume")
    over = said(project, "audit", "out")
    assert {name: over[name] for name in ("requested", "completed", "failed", "cancelled", "in_flight")} == {
        "requested": 6,
        "completed": 6,
        "failed": 0,
        "cancelled": 0,
        "in_flight": 0,
    }
    assert over["run_id"] == run_id(project / "out")
    shown = jetgym(project, "audit", "out")
    assert "balanced" in shown
    assert "12 calls, 0 of them without a reply" in shown
    assert "the log has no run 'nope'" in jetgym(project, "audit", "out", "--run", "nope", code=2)


def test_a_log_at_a_url_holds_several_runs_and_one_is_named(project: Path) -> None:
    up = start(project, "up", "main.yaml", "--output", "live")
    assert up.stdout is not None
    url = next(line for line in up.stdout if line.startswith("ready at ")).split()[2].rstrip(";")
    for output in ("one", "two"):
        jetgym(project, "run", "--url", url, "--input", "tasks.jsonl", "--output", output)
    for where in (["live"], ["--url", url]):
        assert "the log holds 2 runs, name one with --run: " in jetgym(project, "audit", *where, code=2)
    for named in (["one"], ["one", "--url", url], ["live", "--run", run_id(project / "one")]):
        found = said(project, "audit", *named)
        assert (found["run_id"], found["completed"]) == (run_id(project / "one"), 6)
    up.send_signal(signal.SIGINT)
    up.communicate(timeout=DEADLINE_S)


def test_status_tells_queues_and_rates_of_what_is_live_and_the_log_of_what_is_at_rest(project: Path) -> None:
    up = start(project, "up", "main.yaml", "--output", "results/live", "policy.models.slow.seconds=1.0")
    assert up.stdout is not None
    url = next(line for line in up.stdout if line.startswith("ready at ")).split()[2].rstrip(";")
    run = start(project, "run", "--url", url, "--input", "tasks.jsonl", "--output", "one")
    until(lambda: said(project, "status")["ended"] >= 1)
    (watched, *_) = lines_of(start(project, "status", "live", "--watch", "--json"), 2)
    assert watched["looked_s"] >= 1.0
    policy = next(pool for pool in watched["pools"] if pool["pool"] == "policy")
    assert policy["workers"] == 1
    assert watched["in_flight"] == watched["requested"] - watched["ended"]
    run.communicate(timeout=DEADLINE_S)
    for arguments in (["live"], ["--url", url]):
        assert "rollouts: 6 requested, 6 ended, 0 in flight" in jetgym(project, "status", *arguments)
    up.send_signal(signal.SIGINT)
    up.communicate(timeout=DEADLINE_S)
    rest = said(project, "status", "live")
    assert rest["where"] == "results/live, at rest"
    assert (rest["requested"], rest["ended"], rest["dead_letters"]) == (6, 6, 0)
    assert rest["free_bytes"] > 0
    assert [pool["workers"] for pool in rest["pools"]] == [0, 0, 0]


def lines_of(process: subprocess.Popen[str], count: int) -> list[Any]:
    """What a command that goes on prints first; then it is stopped."""
    assert process.stdout is not None
    found = [json.loads(process.stdout.readline()) for _ in range(count)]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, err) == (0, "")
    return found


BREAKABLE = """
        if Path("broken").exists():
            raise ModelError("bad_request", "the engine is broken")
"""


def test_what_a_dead_letter_made_fail_is_asked_for_again_and_a_resumed_run_does_it(project: Path) -> None:
    changed(project / "components" / "models" / "slow" / "app.py", BREAKABLE)
    (project / "broken").touch()
    jetgym(project, *RUN, "--limit", "2", "--output", "out", code=1)
    failed = [line["rollout_id"] for line in lines(project / "out" / "failures.jsonl")]
    assert len(failed) == 2
    asyncio.run(bury(project / "out" / "log", failed[0]))
    (listed,) = said(project, "dead", "list", "out")["letters"]
    assert (listed["rollout"], listed["reason"], listed["pool"]) == (failed[0], "exhausted", "policy")
    shown = jetgym(project, "dead", "show", "out", listed["id"])
    assert "delivered 20 times" in shown
    assert '"type": "model.requested"' in shown
    assert "there is no dead letter 0-1" in jetgym(project, "dead", "show", "out", "0-1", code=2)
    (project / "broken").unlink()
    new = f"{failed[0]}-a1"
    partition, _, seq = listed["id"].partition("-")
    asked = jetgym(project, "dead", "requeue", "out", listed["id"], listed["id"], f"{partition}-0{seq}")
    assert f"{listed['id']}: rollout {failed[0]} is asked for again as {new}" in asked
    assert asked.endswith("1 dead letter decided\n")
    assert "no dead letters about which nobody has decided" in jetgym(project, "dead", "list", "out")
    again = jetgym(project, "dead", "requeue", "out", listed["id"], code=1)
    assert "left as it is: it was requeued" in again
    assert "0 dead letters decided, 1 left as it is" in again
    assert said(project, "audit", "out")["in_flight"] == 1
    jetgym(project, *RUN, "--limit", "2", "--output", "out", "--resume")
    (done,) = lines(project / "out" / "rollouts.jsonl")
    assert (done["rollout_id"], done["attempt"]) == (new, 1)
    found = said(project, "audit", "out")
    assert (found["requested"], found["completed"], found["failed"], found["again"]) == (3, 1, 2, 1)
    rest = said(project, "status", "out")
    assert (rest["requested"], rest["in_flight"], rest["dead_letters"]) == (3, 0, 0)


async def bury(store: Path, rollout: str) -> None:
    """A dead letter of the rollout's model call, as the pool writes it after too many deliveries."""
    async with open_log(store, None, name="test") as bus:
        requests = [each for each in await bus.history(rollout) if each.event.type == "model.requested"]
        found = requests[0]
        letter = DeadLetter(
            reason="exhausted",
            message="delivered 20 times and never finished",
            subject=found.subject,
            seq=found.seq,
            num_delivered=20,
            raw=found.raw,
            event=found.event,
        )
        await bus.dead_letter(letter, "models", "policy")


async def remember(store: Path, run: str, when: datetime) -> None:
    """Writes a run of one rollout that was over long ago."""
    async with open_log(store, None, name="test") as bus:
        started = RunStarted(run_id=run, config={}, rollouts=1, skipped_lines=0, inputs_sha256="")
        end = bus.subjects.ended(run, f"{run}-0")
        asked = bus.subjects.request("agents", "solver", 1, f"{run}-0", ROOT_CALL)
        for event in (
            bus.event("deployment.run", bus.subjects.deployment("run", run), msgspec.json.encode(started)),
            bus.event("rollout.requested", asked, b"{}", rolloutid=f"{run}-0", callkey=ROOT_CALL, replyto=end),
            bus.event("rollout.completed", end, b"{}", rolloutid=f"{run}-0"),
        ):
            await bus.publish(msgspec.structs.replace(event, time=when))


def test_old_runs_leave_the_log_of_a_deployment_that_comes_up(project: Path) -> None:
    """With `log.max_age`, and also where a run comes up with a log of its own; nothing is asked."""
    jetgym(project, *RUN, "--output", "out")
    name, log = run_id(project / "out"), project / "out" / "log"
    asyncio.run(remember(log, "ancient", datetime.now(UTC) - timedelta(days=8)))
    asyncio.run(remember(log, "recent", datetime.now(UTC) - timedelta(days=6)))
    told = jetgym(project, *RUN, "--output", "out", "--resume", "++log.max_age=7d")
    assert "pruned 1 run that ended longer ago than log.max_age: ancient (3 events, " in told
    runs = [run["run"] for run in said(project, "log", "usage", "out")["runs"]]
    assert {name, "recent"} <= set(runs)
    assert "ancient" not in runs
    assert "max_age: 7d" in jetgym(project, "validate", "main.yaml", "++log.max_age=7d")
    refused = jetgym(project, "validate", "main.yaml", "++log.max_age=0m", code=2)
    assert "log.max_age: must be at least 1m; leave it out to keep runs however old they are" in refused


def test_a_run_is_weighed_archived_and_pruned_and_replay_reads_the_file(project: Path) -> None:
    jetgym(project, *RUN, "--output", "out")
    name = run_id(project / "out")
    assert name is not None
    used = said(project, "log", "usage", "out")
    assert [(run["run"], run["rollouts"], run["open"]) for run in used["runs"] if run["rollouts"]] == [(name, 6, 0)]
    assert {each["type"] for each in used["types"]} >= {"rollout.requested", "model.requested", "deployment.resolved"}
    assert len(used["largest"]) == 6
    assert "largest rollouts" in jetgym(project, "log", "usage", "out")
    told = jetgym(project, "log", "archive", "out")
    assert told.startswith(f"{name}.jsonl: 6 rollouts, ")
    assert "exists already" in jetgym(project, "log", "archive", "out", code=2)
    replay = [sys.executable, "-P", "-m", "replay"]
    listed = [
        subprocess.run([*replay, "list", *where, "--json"], cwd=project, capture_output=True, text=True, check=True)
        for where in (["--file", f"{name}.jsonl"], ["--run", "out"])
    ]
    assert listed[0].stdout == listed[1].stdout
    assert "say --yes where nobody can be asked" in jetgym(project, "log", "prune", "out", "--run", name, code=2)
    assert said(project, "audit", "out")["completed"] == 6
    assert said(project, "log", "prune", "out", "--keep", "0", "--yes")["runs"] == [name]
    assert f"the log has no run '{name}'" in jetgym(project, "audit", "out", code=2)
    assert "there is no finished run that fits" in jetgym(project, "log", "prune", "out", "--keep", "0")
