"""Workers that are told to stop: what they finish, what they give back, and that this never counts against it."""

import asyncio
import signal
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bus import LogConfig
from bus.overview import pool_states
from components.workers.stops import UNSUSPECTED, say_stopping
from tests.e2e.workers import PATIENCE_S, Deployment, Instance, start_process

SHARED = {"model": "policy", "resources": "stage"}
LIMIT = 2


def instances(folder: Path, **model: Any) -> dict[str, Instance]:
    return {
        "policy": Instance("models", "noting", {"notes": str(folder / "notes"), **model}),
        "stage": Instance("resources", "stage"),
        "puppet": Instance("agents", "puppet", SHARED),
    }


@pytest.fixture
def log(config: LogConfig) -> LogConfig:
    """Nothing here waits for an ack wait."""
    return config.model_copy(update={"ack_wait_s": 600.0, "max_deliver": LIMIT})


def start_policy(url: str, log: LogConfig, policy: Instance, drain_s: float) -> subprocess.Popen[bytes]:
    """A model worker in a process of its own, when it serves."""
    process = start_process(url, log, "policy", policy, drain_s=drain_s)
    assert process.stdout is not None
    with process.stdout:
        assert msgspec.json.decode(process.stdout.readline())["ready"]
    return process


async def asked(folder: Path, times: int) -> list[str]:
    """The calls that the model was asked, when there are so many."""
    notes = folder / "notes"
    async with asyncio.timeout(PATIENCE_S):
        while len(calls := notes.read_text().split() if notes.exists() else []) < times:  # noqa: ASYNC110 - a file
            await asyncio.sleep(0.02)
    return calls


async def waiting(deployment: Deployment) -> int:
    """The calls that no worker of the model has taken."""
    return sum(pool.waiting for pool in await pool_states(deployment.bus) if pool.instance == "policy")


async def test_a_model_worker_finishes_the_calls_that_it_began(server: str, log: LogConfig, tmp_path: Path) -> None:
    """B12, E5: a call that is paid for is not thrown away; those that wait for it are another worker's."""
    found = instances(tmp_path, latency={"mean_s": 2.0}, pool={"concurrency": 1})
    async with Deployment(server, log, found) as deployment:
        await deployment.start("stage", "puppet")
        process = start_policy(server, log, found["policy"], drain_s=PATIENCE_S)
        rollouts = ["r0", "r1", "r2"]
        for rollout in rollouts:
            await deployment.ask(rollout, {"plan": [["model"], ["add", 1]], "expected": 1})
        (first,) = await asked(tmp_path, 1)
        async with asyncio.timeout(PATIENCE_S):
            while await waiting(deployment) < len(rollouts) - 1:  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        assert await asked(tmp_path, 1) == [first]
        assert await deployment.bus.last(f"{log.namespace}.0.reply.*.{first.replace('/', '.')}") is not None
        await deployment.start("policy")
        assert [await deployment.reward(rollout) for rollout in rollouts] == [1.0] * 3
        assert sorted(await asked(tmp_path, 3)) == [f"{rollout}/m_1" for rollout in rollouts]


async def test_a_call_is_not_buried_for_the_workers_that_were_told_to_stop(
    server: str, log: LogConfig, tmp_path: Path
) -> None:
    """B12, B6: a model that takes longer than its workers get is asked again as often as they are replaced."""
    found = instances(tmp_path, latency={"mean_s": 600.0})
    async with Deployment(server, log, found) as deployment:
        await deployment.start("stage", "puppet")
        await deployment.ask("r", {"plan": [["model"], ["add", 1]], "expected": 1})
        for number in range(1, UNSUSPECTED + LIMIT + 1):
            process = start_policy(server, log, found["policy"], drain_s=0.0)
            await asked(tmp_path, number)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
    quick = instances(tmp_path)
    async with Deployment(server, log, quick) as deployment:
        await deployment.start(*quick)
        assert await deployment.reward("r") == 1.0
        assert await deployment.bus.last(f"{log.namespace}.0.dead.>") is None


async def test_a_call_that_waits_to_be_tried_again_is_given_back_at_once(
    server: str, log: LogConfig, tmp_path: Path
) -> None:
    """B12: an engine that is away does not hold up the end of a worker."""
    found = instances(tmp_path, faults=[{"kind": "transient", "rate": 1.0, "retry_after_s": 600.0}])
    async with Deployment(server, log, found) as deployment:
        await deployment.start("stage", "puppet")
        policy = await deployment.start_one("policy", worker="first")
        await deployment.ask("r", {"plan": [["model"], ["add", 1]], "expected": 1})
        await asked(tmp_path, 1)
        async with asyncio.timeout(PATIENCE_S):
            await policy.served.drain(2 * PATIENCE_S)
        assert policy.served.in_progress == 0
    quick = instances(tmp_path)
    async with Deployment(server, log, quick) as deployment:
        await deployment.start(*quick)
        assert await deployment.reward("r") == 1.0


async def test_a_rollout_is_not_buried_for_the_workers_that_were_told_to_stop(
    server: str, log: LogConfig, tmp_path: Path
) -> None:
    """B12, B6: it waits for one long reply, and its workers are replaced again and again meanwhile."""
    found = instances(tmp_path)
    async with Deployment(server, log, found) as deployment:
        await deployment.start("stage")
        await deployment.ask("r", {"plan": [["model"], ["add", 1]], "expected": 1})
        for number in range(LIMIT + 2):
            puppet = await deployment.start_one("puppet", worker=f"puppet-{number}")
            if number:
                await deployment.until(deployment.bus.subjects.adopted("run", "r", number))
            await deployment.until(deployment.bus.subjects.request("models", "policy", 1, "r", "m_1"))
            await say_stopping(deployment.bus, f"puppet-{number}", "agents", "puppet")
            async with asyncio.timeout(PATIENCE_S):
                await puppet.served.drain(2 * PATIENCE_S)
        await deployment.start("policy", "puppet")
        assert await deployment.reward("r") == 1.0
        assert await deployment.bus.last(f"{log.namespace}.0.dead.>") is None
        assert await asked(tmp_path, 1) == ["r/m_1"]
        await deployment.check(["r"])
