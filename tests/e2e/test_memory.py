"""Tools that take ever more memory, in real processes: none but what they do themselves suffers."""

from typing import Any

import pytest

from bus import LogConfig
from components.workers.exits import GROWN
from tests.e2e.workers import PATIENCE_S, Deployment, Instance, kept, start_process

MOST_MB = 300
"""Several times what a worker needs."""


def instances(memory_mb: int = MOST_MB, **resources: Any) -> dict[str, Instance]:
    return {
        "stage": Instance("resources", "stage", {"pool": {"memory_mb": memory_mb}, **resources}),
        "puppet": Instance("agents", "puppet", {"resources": "stage"}),
    }


@pytest.mark.slow
async def test_a_tool_that_leaks_has_its_worker_started_anew_and_every_rollout_is_right(
    server: str, config: LogConfig
) -> None:
    """E10: what is in progress is finished, and sessions go on in the new worker."""
    plan = [["tool", "leak", {"megabytes": 20}], ["sleep", 1.0], ["tool", "leak", {"megabytes": 20}]]
    rollouts = [f"r{number}" for number in range(20)]
    async with Deployment(server, config, instances()) as deployment:
        await deployment.start("puppet")
        async with kept(server, config, "stage", instances()["stage"], 1) as codes:
            for rollout in rollouts:
                await deployment.ask(rollout, {"plan": plan, "expected": 2})
            assert [await deployment.reward(rollout) for rollout in rollouts] == [1.0] * len(rollouts)
            assert set(codes) == {GROWN}
        await deployment.check(rollouts)


@pytest.mark.slow
async def test_a_call_that_needs_much_for_long_is_finished_and_not_made_again(server: str, config: LogConfig) -> None:
    """E10: given back, it would make one worker after the other grow, without an end."""
    plan = [["tool", "leak", {"megabytes": 2 * MOST_MB, "seconds": 3.0}]]
    async with Deployment(server, config, instances()) as deployment:
        await deployment.start("puppet")
        async with kept(server, config, "stage", instances()["stage"], 1, drain_s=0.1) as codes:
            await deployment.ask("r", {"plan": plan, "expected": 1})
            assert await deployment.reward("r") == 1.0
            assert codes == [GROWN]


@pytest.mark.parametrize("data_mb", [None, 1_000])
async def test_a_call_that_wants_all_memory_fails_alone(server: str, config: LogConfig, data_mb: int | None) -> None:
    """E10: it is told so, and its worker goes on; also where the system allows less than would be refused."""
    plan = [["tool", "leak", {"megabytes": 3_000}], ["add", 1]]
    async with Deployment(server, config, instances()) as deployment:
        await deployment.start("puppet")
        async with kept(server, config, "stage", instances()["stage"], 1, data_mb=data_mb) as codes:
            await deployment.ask("r", {"plan": plan, "expected": 2})
            assert await deployment.reward("r") == 1.0
            assert "raised MemoryError" in (await deployment.replied("r", "m_1"))["output"]
            assert codes == []


@pytest.mark.parametrize(("memory_mb", "data_mb"), [(1, None), (2_000, 1_000)])
def test_a_worker_whose_bound_cannot_be_kept_is_refused(
    server: str, config: LogConfig, memory_mb: int, data_mb: int | None
) -> None:
    """E10: it takes more before its first call, or the system allows less."""
    process = start_process(server, config, "stage", instances(memory_mb)["stage"], data_mb=data_mb)
    assert process.stdout is not None
    with process.stdout as said:
        assert said.read() == b""
    assert process.wait(PATIENCE_S) == 2
