"""A worker with one place and something slow in it holds nothing else: whoever has a free place does the rest."""

from pathlib import Path
from typing import Any

import pytest

from bus import LogConfig
from bus.overview import pool_states
from tests.e2e.workers import RUN, Deployment, Instance

NARROW = {"pool": {"concurrency": 1}}


@pytest.mark.parametrize(("narrow", "slow"), [("policy", [["model"]]), ("puppet", [["sleep", 600]])])
async def test_what_is_slow_holds_back_nothing_while_another_worker_is_idle(
    server: str, config: LogConfig, tmp_path: Path, narrow: str, slow: list[Any]
) -> None:
    """B8: the others are complete before the slow one ends, and what the pool is said to hold is that one alone."""
    found = {
        "policy": Instance("models", "noting", {"notes": str(tmp_path / "notes"), "hangs_for": "slow"}),
        "stage": Instance("resources", "stage"),
        "puppet": Instance("agents", "puppet", {"model": "policy", "resources": "stage"}),
    }
    instance = found[narrow]
    found[narrow] = Instance(instance.kind, instance.implementation, {**instance.config, **NARROW})
    async with Deployment(server, config, found) as deployment:
        await deployment.start(*found)
        await deployment.start_one(narrow, worker="other")
        rollouts = [f"r{number}" for number in range(6)]
        await deployment.ask("slow", {"plan": slow})
        for rollout in rollouts:
            await deployment.ask(rollout, {"plan": [["model"], ["add", 1], ["model"]], "expected": 1})
        assert [await deployment.reward(rollout) for rollout in rollouts] == [1.0] * len(rollouts)
        assert await deployment.bus.last(deployment.bus.subjects.ended(RUN, "slow")) is None
        assert {pool.instance: pool.held for pool in await pool_states(deployment.bus)}[narrow] == 1
