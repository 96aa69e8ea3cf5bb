"""Many rollouts over several partitions, slots and workers: each right, each once, and the files again from the log."""

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from bus import LogConfig
from contracts.events import Recorded
from orchestrator.collect import collect, outcomes_in_log, rollout_id_of
from orchestrator.results import Outcome
from orchestrator.tasks import MaterializedTask
from tests.e2e.workers import Deployment, Instance

ROLLOUTS = 200


def tasks() -> list[MaterializedTask]:
    """Counters that are moved by numbers in the text; every third is expected to stand where it will not."""
    chance = random.Random(7)
    made = []
    for number in range(ROLLOUTS):
        counts = [chance.randrange(10) for _ in range(3)]
        line = {
            "responses_create_params": {"input": [{"role": "user", "content": " ".join(map(str, counts))}]},
            "initial_count": number,
            "expected_count": number + sum(counts) + (number % 3 == 0),
        }
        made.append(
            MaterializedTask(agent="solver", task_index=number, rollout_index=0, line=json.dumps(line).encode())
        )
    return made


@pytest.mark.parametrize(("partitions", "slots"), [(1, 2), (3, 5)])
async def test_every_rollout_of_a_large_run_is_right(
    server: str, config: LogConfig, tmp_path: Path, partitions: int, slots: int
) -> None:
    """E7: requested = completed, from the log alone; sessions stay apart though two workers share them."""
    add = [{"name": "increment_counter", "arguments": f'{{"count": {{{n}}}}}'} for n in (1, 2)]
    last = [{"name": "increment_counter", "arguments": '{"count": {3}}'}, {"name": "get_counter_value"}]
    rules = [{"when": r"(\d+) (\d+) (\d+)", "turns": [{"calls": add}, {"calls": last}, {"text": "done"}]}]
    latency = {"distribution": "exponential", "mean_s": 0.02}
    found = {
        "policy": Instance("models", "scripted_model", {"rules": rules, "latency": latency, "vary": "call"}),
        "counter": Instance("resources", "example_session_state_mgmt", slots=slots),
        "solver": Instance("agents", "simple_agent", {"model": "policy", "resources": "counter"}),
    }
    log = config.model_copy(update={"partitions": partitions})
    asked = tasks()
    async with Deployment(server, log, found) as deployment:
        for number in range(2):
            await deployment.start_one("policy", worker=f"policy-{number}")
            await deployment.start_one("solver", worker=f"solver-{number}")
            served = tuple(range(number, slots, 2))
            await deployment.start_one("counter", worker=f"counter-{number}", slots=served)
        outcomes: list[Outcome] = []
        await collect(deployment.bus, asked, run_id="r1", output=tmp_path, concurrency=150, on_outcome=outcomes.append)
        rewards = {outcome.task_index: outcome.reward for outcome in outcomes}
        assert rewards == {number: float(number % 3 != 0) for number in range(ROLLOUTS)}
        written = (tmp_path / "rollouts.jsonl").read_bytes().splitlines()
        again = [outcome.line async for outcome in outcomes_in_log(deployment.bus, "r1")]
        assert Counter(again) == Counter(written)
        assert partitions > 1 or again == written
        events: list[Recorded] = []
        for partition in range(partitions):
            events += [recorded async for recorded in deployment.bus.scan(partition=partition)]
        kinds = Counter(recorded.event.type for recorded in events)
        assert kinds["rollout.requested"] == kinds["rollout.completed"] == ROLLOUTS
        for call, count in {"session": 1, "model": 3, "tool": 4, "verify": 1}.items():
            assert kinds[f"{call}.requested"] == kinds[f"{call}.replied"] == count * ROLLOUTS
        replies = [recorded.event for recorded in events if recorded.event.type == "tool.replied"]
        workers = {(event.rolloutid, event.source) for event in replies}
        assert len(workers) == ROLLOUTS
        assert len({worker for _, worker in workers}) == 2
        await deployment.check(rollout_id_of("r1", task) for task in asked[::20])
