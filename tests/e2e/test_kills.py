"""Processes of a whole deployment are killed, ended politely, or stopped for a while in the middle of a run.

The supervisor starts again what ended. Every rollout completes with the reward that it has without all that.
"""

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from bus.deadletter import DeadLetterData
from contracts.rollouts import Adopted
from orchestrator.collect import collect, rollout_id_of
from orchestrator.config import load_config
from orchestrator.describing import check
from orchestrator.launch import Deployment
from orchestrator.results import Outcome
from orchestrator.run_files import RunFiles
from orchestrator.tasks import MaterializedTask
from replay import Verifier, facts_of, load
from replay.log_source import LogSource
from tests.e2e.workers import PATIENCE_S, PROJECT

Outcomes = dict[int, Outcome]
"""By the index of the task."""

pytestmark = pytest.mark.asyncio(loop_scope="module")

SLOW = ["tool", "add_slowly", {"count": 4, "seconds": 0.1}]
INNER = {"plan": [["model"], ["adds", 1, 2], ["timeout", 0.1, [["sleep", 60]]]], "expected": 103}
PLANS = [
    [["model"], ["appends", 4, 7], SLOW, ["model"], ["sleep", 0.3], ["model"]],
    [["parallel", [["ask", INNER]], [["model"], ["adds", 20, 25]]], SLOW, ["model"], ["add", 1], ["sleep", 0.1]],
]
EXPECTED = 51
ROLLOUTS = 16
MODEL_CALLS = 3 * ROLLOUTS


class Live:
    """A deployment that lives as long as the tests of this module."""

    def __init__(self, deployment: Deployment, notes: Path) -> None:
        self.deployment, self.bus, self.notes = deployment, deployment.bus, notes
        self.runs = 0

    def pid(self, worker: str) -> int:
        """Of the process that is the worker now."""
        assert self.deployment._supervisor is not None
        return self.deployment._supervisor.pids[worker]

    def made(self) -> list[str]:
        """The calls that the model was asked in this run."""
        lines = self.notes.read_text().split() if self.notes.exists() else []
        return [line for line in lines if line.startswith(f"k{self.runs}-")]

    def begin(self, folder: Path, plans: list[Any] | None = None, agent: str = "puppet") -> asyncio.Task[Outcomes]:
        """Begins the next run."""
        self.runs += 1
        return asyncio.create_task(self._run(folder, plans, agent))

    async def _run(self, folder: Path, plans: list[Any] | None, agent: str) -> Outcomes:
        found: Outcomes = {}

        def hear(outcome: Outcome) -> None:
            found[outcome.task_index] = outcome

        tasks = [task(number, plan, agent) for number, plan in enumerate(plans or PLANS * (ROLLOUTS // 2))]
        run_id = f"k{self.runs}"
        await collect(self.bus, tasks, run_id=run_id, output=folder, concurrency=ROLLOUTS, on_outcome=hear)
        assert sorted(found) == list(range(len(tasks)))
        return found

    async def verified(self, *numbers: int) -> set[str]:
        """The verdicts of `replay verify` on the rollouts of this run."""
        source = LogSource(self.bus, "log")
        verifier = Verifier(await facts_of(source))
        rollouts = [rollout_id_of(f"k{self.runs}", task(number, [], "")) for number in numbers]
        return {verifier.verify(await load(source, rollout)).verdict for rollout in rollouts}

    async def terminal_events(self) -> int:
        """How many terminal events this run has."""
        ended = self.bus.subjects.ended_of(0, f"k{self.runs}")
        return len([recorded async for recorded in self.bus.scan(ended)])

    async def busiest(self) -> str:
        """The agent worker that made most of this run's calls."""
        asked = f"{self.bus.config.namespace}.0.resources.stage.*.request.*.m_0"
        sources = [
            recorded.event.source.rpartition("/")[2].rpartition("-")[0]
            async for recorded in self.bus.scan(asked)
            if recorded.event.rolloutid.startswith(f"k{self.runs}-")
        ]
        return Counter(sources).most_common(1)[0][0]

    async def adoptions(self) -> list[str]:
        """The workers that adopted something in this run."""
        subject = f"{self.bus.config.namespace}.0.rollout.adopted.k{self.runs}.>"
        return [
            msgspec.json.decode(recorded.event.data, type=Adopted).worker async for recorded in self.bus.scan(subject)
        ]


def task(number: int, plan: Any, agent: str) -> MaterializedTask:
    line = {"responses_create_params": {"input": "Go."}, "plan": plan, "expected": EXPECTED}
    return MaterializedTask(agent=agent, task_index=number, rollout_index=0, line=json.dumps(line).encode())


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - any condition, also of objects that tell nobody
            await asyncio.sleep(0.01)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Live]:
    folder = tmp_path_factory.mktemp("live")
    config = load_config(["main.yaml"], [f"policy.models.noting.notes={folder / 'notes'}"], folder=PROJECT)
    checked = await check(config, print)
    with RunFiles(folder) as files:
        async with Deployment.start(checked, files, print) as deployment:
            yield Live(deployment, folder / "notes")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "ended politely"])
@pytest.mark.parametrize("workers", [("puppet-0", "stage-0", "helper-0"), ("policy-0", "stage-1", "puppet-1")])
async def test_a_run_survives_the_end_of_any_worker(
    live: Live, tmp_path: Path, workers: tuple[str, ...], number: signal.Signals
) -> None:
    """E5, E7: at three points of one run; no call is made twice but where its model died; all of it verifies."""
    running = live.begin(tmp_path)
    for place, worker in enumerate(workers, start=1):
        calls = place * MODEL_CALLS // 4
        await until(lambda: running.done() or len(live.made()) >= calls)  # noqa: B023 - awaited before it changes
        with suppress(KeyError):  # it has not started again yet
            os.kill(live.pid(worker), number)
    outcomes = await running
    assert {outcome.reward for outcome in outcomes.values()} == {1.0}
    assert await live.terminal_events() == ROLLOUTS
    made = Counter(live.made())
    assert len(made) == MODEL_CALLS
    assert "policy-0" in workers or set(made.values()) == {1}
    assert await live.verified(*range(ROLLOUTS)) == {"same"}


async def test_an_agent_worker_that_was_stopped_for_long_drops_what_others_adopted(live: Live, tmp_path: Path) -> None:
    """E6: adopted while it stands still; when it goes on it harms nothing and works on."""
    running = live.begin(tmp_path)
    await until(lambda: len(live.made()) >= MODEL_CALLS // 6)
    worker = await live.busiest()
    stopped = live.pid(worker)
    os.kill(stopped, signal.SIGSTOP)
    try:
        adopters = 0
        async with asyncio.timeout(PATIENCE_S):
            while not (adopters := len(await live.adoptions())):  # noqa: ASYNC110 - the log tells nobody
                await asyncio.sleep(0.05)
    finally:
        os.kill(stopped, signal.SIGCONT)
    outcomes = await running
    assert adopters
    assert {outcome.reward for outcome in outcomes.values()} == {1.0}
    assert await live.terminal_events() == ROLLOUTS
    made = live.made()
    assert len(made) == len(set(made)) == MODEL_CALLS
    assert live.pid(worker) == stopped
    assert await live.verified(*range(ROLLOUTS)) == {"same"}


@pytest.mark.parametrize("how", ["exit", *(pytest.param(how, marks=pytest.mark.slow) for how in ("spin", "block"))])
async def test_code_that_ends_its_worker_fails_its_own_rollout_only(live: Live, tmp_path: Path, how: str) -> None:
    """B6, E8: those held by the same workers complete. Where the loop never turned again is in the worker's log."""
    others = [["add", 51], ["model"], ["sleep", 0.2], ["model"]]
    outcomes = await live.begin(tmp_path, [[[how]], others, others], agent="killer")
    assert [outcomes[number].reward for number in (1, 2)] == [1.0, 1.0]
    assert outcomes[0].error == "poison"
    assert outcomes[0].message == (
        "3 workers in a row ended, or gave it back, without adding anything to it: their logs say how they ended"
    )
    letters = live.bus.scan(f"{live.bus.config.namespace}.0.dead.*.*.{outcomes[0].rollout_id}.*")
    (letter,) = [msgspec.json.decode(recorded.event.data, type=DeadLetterData) async for recorded in letters]
    assert letter.reason == "exhausted"
    worker_log = (live.notes.parent / "logs" / "killer-0.log").read_text()
    assert how == "exit" or ("agents/puppet/app.py" in worker_log and f" in _{how}" in worker_log)
    assert await live.verified(1, 2) == {"same"}
