"""Policy versions on real workers: from the announcement, or from what the engine says, to the rollout's end."""

import asyncio

from bus import LogConfig
from contracts.rollouts import RolloutResult
from tests.e2e.test_capture import SCRIPT, TASK, announce, instances
from tests.e2e.workers import Deployment
from tests.engines.vllm import Vllm


async def policy_of(deployment: Deployment, rollout: str) -> object:
    result = await deployment.end(rollout)
    assert isinstance(result, RolloutResult), result
    assert result.stats is not None
    return result.stats.policy


async def test_a_rollouts_end_names_the_versions_between_which_its_calls_were(server: str, config: LogConfig) -> None:
    """The weights change while its first call is answered: the call began at 3, so the rollout is of 3 and 4."""
    async with (
        Vllm(SCRIPT, gate=asyncio.Event()).serving() as engine,
        Deployment(server, config, instances(engine)) as deployment,
    ):
        await announce(deployment.bus, 3)
        await deployment.start("quiz", "solver", "policy")
        await deployment.ask("r", TASK, agent="solver")
        async with asyncio.timeout(60):
            while not engine.asked:  # noqa: ASYNC110 - the engine tells nobody
                await asyncio.sleep(0.01)
        await announce(deployment.bus, 4)
        assert engine.gate is not None
        engine.gate.set()
        assert await policy_of(deployment, "r") == (3, 4)


async def test_an_engine_that_says_which_tokens_are_of_which_version_is_believed(
    server: str, config: LogConfig
) -> None:
    async with (
        Vllm(SCRIPT, versions=lambda count: [[1, 1], [2, count - 1]]).serving() as engine,
        Deployment(server, config, instances(engine)) as deployment,
    ):
        await announce(deployment.bus, 7)
        await deployment.start("quiz", "solver", "policy")
        await deployment.ask("r", TASK, agent="solver")
        assert await policy_of(deployment, "r") == (1, 2)
