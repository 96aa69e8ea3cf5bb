"""Policy versions on real workers: from the announcement, or from what the engine says, to the rollout's end."""

import asyncio
from typing import Any

from bus import LogConfig
from contracts.rollouts import ModelStats, RolloutResult, counted
from orchestrator.samples import read_samples
from tests.e2e.test_capture import SCRIPT, TASK, announce, instances
from tests.e2e.workers import Deployment, Instance
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


async def test_a_call_that_began_before_any_version_was_heard_of_is_of_the_one_when_its_rollout_was_asked_for(
    server: str, config: LogConfig
) -> None:
    """T15, F3: that of an agent that was called, too. A judge's tokens and versions are counted apart.

    The engine counts no tokens, so they are counted from what was captured.
    """

    def count_nothing(answer: dict[str, Any]) -> None:
        del answer["usage"]

    gate = asyncio.Event()
    engine = Vllm(["It is done."], gate=gate, spoil=count_nothing)
    judging = Vllm(["Good."], versions=lambda count: [[0, count]])
    uses = {"model": "policy", "resources": "stage"}
    task = {"plan": [["ask", {"plan": [["model"]]}], ["model", "judge"]], "expected": 1}
    async with engine.serving(), judging.serving():
        found = {
            "policy": Instance("models", "chat_model", {"base_url": engine.url, "token_ids": True}),
            "judge": Instance("models", "chat_model", {"base_url": judging.url, "token_ids": True}),
            "stage": Instance("resources", "stage"),
            "helper": Instance("agents", "puppet", uses),
            "puppet": Instance("agents", "puppet", uses | {"helper": "helper"}),
        }
        async with Deployment(server, config, found) as deployment:
            await deployment.start(*found)
            await deployment.ask("r", task, version=4)
            async with asyncio.timeout(60):
                while not engine.asked:  # noqa: ASYNC110 - the engine tells nobody
                    await asyncio.sleep(0.01)
                await announce(deployment.bus, 6)
                while deployment.policies[0].version != 6:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            gate.set()
            assert await policy_of(deployment, "r") == (0, 6)
            result = await deployment.end("r")
            assert isinstance(result, RolloutResult)
            assert result.stats is not None
            tokens = len(engine.said[0][1])
            assert counted(result.stats, ["policy"]) == ModelStats(captured=1, generated=tokens, policy=(4, 6))
            (sample,) = (await read_samples(deployment.bus, "r", models=["policy"])).samples
            assert sample.versions[sample.mask].tolist() == [4] * tokens
