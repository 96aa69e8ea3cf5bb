"""Policy versions that several trainers announce, and how each of them hears of it."""

import asyncio
from typing import Any

from bus import LogConfig
from components.workers.policies import Policies
from contracts.events import Event
from contracts.rollouts import ModelStats, RolloutRequest
from orchestrator import Trainer
from orchestrator.policy_versions import announce, newest_version
from tests.bus.trainers import Agents, deployed, tasks

PATIENCE_S = 30.0


def connected(server: str, config: LogConfig, **options: Any) -> Any:
    return Trainer.connect(server, run="grpo", namespace=config.namespace, **options)


async def heard(trainer: Trainer, version: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while trainer.version < version:
            await trainer._bell.wait()


def generating(agents: Agents, version: int) -> None:
    """From now on everything that ends is of this version."""

    async def behave(event: Event, request: RolloutRequest) -> None:
        await agents.complete(event, request, captured=1, tokens=3, policy=(version, version))

    agents.behave = behave


async def test_f3_a_trainer_hears_the_versions_that_another_one_announces(server: str, config: LogConfig) -> None:
    """It counts staleness from them, asks at them, and what it may ask for is counted by them."""
    bounds = {"groups": 1, "max_lag": 1}
    async with (
        deployed(server, config) as agents,
        connected(server, config, **bounds) as first,
        connected(server, config, feed="critic", **bounds) as critic,
    ):
        generating(agents, 0)
        await first.submit(tasks(1), group_size=2)
        await (await anext(critic.feed(patience_s=PATIENCE_S))).commit()
        await first.policy_updated(4)
        await heard(critic, 4)
        generating(agents, 3)
        async with asyncio.timeout(PATIENCE_S):
            await critic.submit(tasks(2, first=1), group_size=2)  # nothing was committed at this version
        for trainer in (first, critic):
            feed = trainer.feed(groups=2, patience_s=PATIENCE_S)
            batch = await anext(feed)
            assert (batch.version, [group.lag for group in batch.groups]) == (4, [1, 1])
            await batch.commit()
        assert {request.policy_version for _, request in agents.requests} == {0, 4}
        assert first.state().dropped == {"stale": 2}
        assert critic.state().staleness == {0: 2, 1: 4}


async def test_versions_never_fall_whoever_announces_and_in_whatever_order(server: str, config: LogConfig) -> None:
    """Neither for model workers nor for trainers, those that start again included."""
    async with deployed(server, config) as agents, connected(server, config) as trainer:
        workers = Policies(agents.bus, "policy")
        await workers.start()
        assert workers.version == 0
        await trainer.policy_updated(5)
        await announce(agents.bus, ["policy"], 2)  # of one who had not heard of 5 yet
        await workers.start()
        assert workers.version == await newest_version(agents.bus, "policy") == 5
        await asyncio.gather(*(trainer.policy_updated(version) for version in (9, 6, 8, 7)))
        async with connected(server, config, feed="critic") as again:
            assert trainer.version == again.version == 9


async def test_t15_a_model_that_was_left_behind_is_not_said_to_have_newer_weights(
    server: str, config: LogConfig
) -> None:
    async with deployed(server, config, models=("policy", "twin", "third")) as agents:
        async with connected(server, config, models=["policy", "twin"]) as trainer:
            await trainer.policy_updated(3)
            await trainer.policy_updated(5, models=["policy"])
        async with connected(server, config, models=["policy", "twin", "third"]) as trainer:
            found = [await newest_version(agents.bus, model) for model in trainer.models]
            assert (found, trainer.version) == ([5, 3, 0], 5)
            await trainer.policy_updated(5)
            assert [await newest_version(agents.bus, model) for model in trainer.models] == [5, 5, 5]


async def test_f3_trainers_of_two_models_of_a_run_count_the_versions_of_their_own(
    server: str, config: LogConfig
) -> None:
    """Also where a rollout has said nothing with one of them: what it was asked for at is the other's count."""

    async def behave(event: Event, request: RolloutRequest) -> None:
        calls = {"policy": ModelStats(captured=1, generated=3, policy=(first.version, first.version))}
        if request.rollout_index:
            calls["critic"] = ModelStats(captured=1, generated=3, policy=(second.version, second.version))
        await agents.complete(event, request, captured=len(calls), tokens=6, by_model=calls)

    bounds = {"groups": 1, "max_lag": 1}
    async with (
        deployed(server, config, models=("policy", "critic")) as agents,
        connected(server, config, models=["policy"], **bounds) as first,
        connected(server, config, models=["critic"], feed="critic", **bounds) as second,
    ):
        agents.behave = behave
        for number, (of_first, of_second) in enumerate(((4, 0), (4, 0), (5, 20), (6, 40))):
            await first.policy_updated(of_first)
            await second.policy_updated(of_second)
            assert (first.version, second.version) == (of_first, of_second)
            async with asyncio.timeout(PATIENCE_S):
                await first.submit(tasks(1, first=number), group_size=2)
            for trainer in (first, second):
                (group,) = (batch := await anext(trainer.feed(patience_s=PATIENCE_S))).groups
                assert group.lag == 0
                await batch.commit()
