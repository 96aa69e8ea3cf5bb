"""A trainer on a real server: how stale what it is fed may be, and how much it may ask for because of that."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from bus import LogConfig
from contracts.rollouts import ModelStats
from orchestrator import Trainer
from orchestrator.delivered import Batch
from orchestrator.errors import FeedStarved, UsageError
from tests.bus.trainers import PATIENCE_S, connected, deployed, ids, number, take, tasks, until_ended


async def test_f7_a_restart_does_not_change_how_much_may_be_asked_for(server: str, config: LogConfig) -> None:
    """F7: at each step of a run, the capacity that a second trainer reads from the log is the first one's."""
    taken: list[dict[str, Any]] = [{"groups": 2}] * 6
    taken[3:5] = {"groups": 2, "drop_zero_variance": True}, {"rollouts": 3}
    async with deployed(server, config) as agents, connected(server, config, groups=2, max_lag=1) as trainer:
        for step, options in enumerate(taken):
            await room_is_the_same(server, config, trainer)
            submitting = asyncio.create_task(trainer.submit(tasks(20), group_size=2))
            batch = await take(trainer, **options)
            submitting.cancel()
            await asyncio.gather(submitting, return_exceptions=True)
            await room_is_the_same(server, config, trainer, in_hand=True)
            await batch.commit()
            await room_is_the_same(server, config, trainer)
            if step % 2:
                await trainer.policy_updated(trainer.version + 1)
        assert trainer.version == 3
        assert len(agents.requests) <= 2 * 20


async def test_f7_what_was_taken_ahead_or_is_committed_late_counts_at_the_version_that_trained_on_it(
    server: str, config: LogConfig
) -> None:
    """F7: one group a version. Three are taken at version 0; the fourth is committed after version 3 was announced."""
    async with deployed(server, config), connected(server, config, groups=1, max_lag=3) as trainer:
        submitting = asyncio.create_task(trainer.submit(tasks(20), group_size=2))
        ahead = [await take(trainer) for _ in range(3)]
        for version, batch in enumerate(ahead):
            await batch.commit()
            assert trainer._groups.committed_now == {2: 2}
            await room_is_the_same(server, config, trainer, in_hand=True, groups=1, max_lag=3)
            await trainer.policy_updated(version + 1)
        late = await take(trainer)
        await trainer.policy_updated(4)
        await late.commit()
        assert not trainer._groups.committed_now.total()
        await room_is_the_same(server, config, trainer, groups=1, max_lag=3)
        submitting.cancel()
        await asyncio.gather(submitting, return_exceptions=True)


async def room_is_the_same(
    server: str, config: LogConfig, trainer: Trainer, *, in_hand: bool = False, groups: int = 2, max_lag: int = 1
) -> None:
    async with connected(server, config, groups=groups, max_lag=max_lag) as second:
        assert second.version == trainer.version
        async with asyncio.timeout(PATIENCE_S):
            while second._groups.unfinished_rollouts != trainer._groups.unfinished_rollouts:
                await second._bell.wait()
        assert second._groups.committed_now == trainer._groups.committed_now
        assert set(second._groups.open) == set(trainer._groups.open)
        assert second._groups.sizes == trainer._groups.sizes
        assert in_hand or set(second._groups.ready) == set(trainer._groups.ready)


async def test_a_trainer_on_policy_that_died_before_it_announced_goes_on_with_the_next_version(
    server: str, config: LogConfig
) -> None:
    """As the page says of a restart: what it had committed has used up its version."""
    bounds = {"groups": 1, "max_lag": 0}
    async with deployed(server, config):
        async with connected(server, config, **bounds) as trainer:
            await trainer.submit(tasks(1), group_size=1)
            await (await take(trainer)).commit()
        async with connected(server, config, **bounds) as trainer:
            submitting = asyncio.create_task(trainer.submit(tasks(2), group_size=1))
            with pytest.raises(FeedStarved, match="nothing more is asked for at policy version 0"):
                await take(trainer, patience_s=0.2)
            await trainer.policy_updated(trainer.version + 1)
            assert len(ids(await take(trainer))) == 1
            await submitting


@pytest.mark.parametrize(("every", "max_lag", "warnings"), [(1, 0, 0), (2, 0, 1), (2, 1, 1), (2, 2, 0), (5, 2, 1)])
async def test_a_trainer_that_commits_too_seldom_to_be_asked_ahead_for_is_told_so_once(
    server: str, config: LogConfig, every: int, max_lag: int, warnings: int
) -> None:
    """It commits after every so manieth version was announced; with one batch a version it goes on all the same."""
    async with deployed(server, config), connected(server, config, groups=1, max_lag=max_lag) as trainer:
        submitting = asyncio.create_task(trainer.submit(tasks(40), group_size=1))
        kept: list[Batch] = []
        with capture_logs() as logs:
            for version in range(1, 9):
                kept.append(await take(trainer))
                await trainer.policy_updated(version)
                while kept and version % every == 0:
                    await kept.pop().commit()
        submitting.cancel()
        await asyncio.gather(submitting, return_exceptions=True)
        assert sum(line["event"] == "not_committed" for line in logs) == warnings


async def test_f3_what_is_staler_than_the_bound_is_refused_and_counted(server: str, config: LogConfig) -> None:
    """F3, F4: a slow trainer gets nothing that is too old; what is refused is in the log and never comes again."""
    async with deployed(server, config):
        async with connected(server, config) as trainer:
            await trainer.submit(tasks(3), group_size=2)
            await trainer.policy_updated(1)
            await trainer.submit(tasks(3, first=3), group_size=2)
            first = await take(trainer, groups=1, max_lag=1)
            await first.commit()
            assert first.groups[0].lag in (0, 1)
            await until_ended(trainer)
            await trainer.policy_updated(2)
            fresh = await take(trainer, groups=2, max_lag=1)
            assert [group.lag for group in fresh.groups] == [1, 1]
            stale = trainer.state().dropped["stale"]
            assert stale // 2 + len(first.groups) + trainer.state().waiting == 6
        async with connected(server, config) as trainer:
            assert trainer.state().dropped["stale"] == stale
            with pytest.raises(FeedStarved, match=f"rollouts dropped so far: {stale} stale"):
                await take(trainer, groups=7, patience_s=0.3)
            assert set(ids(fresh)) <= trainer._groups.open.keys()
            assert trainer.state().waiting == 6 - stale // 2 - 1


async def test_f3_with_a_bound_of_0_everything_is_on_policy(server: str, config: LogConfig) -> None:
    """F3: each batch has what was asked for at its version; nothing is refused, as nothing is asked for too early."""
    async with deployed(server, config), connected(server, config, groups=2, max_lag=0) as trainer:
        submitting = asyncio.create_task(trainer.submit(tasks(20), group_size=2))
        for version in range(1, 6):
            batch = await take(trainer)
            assert batch.lags == {0: 4}
            assert {group.version for group in batch.groups} == {version - 1}
            await batch.commit()
            await trainer.policy_updated(version)
        submitting.cancel()
        assert trainer.state().dropped == {}
        assert trainer.state().staleness == {0: 20}


async def test_f3_what_newer_weights_generated_than_were_announced_waits_until_they_are(
    server: str, config: LogConfig
) -> None:
    """F3: how stale it is nobody knows before. An engine whose numbers are not the trainer's is told of."""
    async with deployed(server, config) as agents, connected(server, config, groups=8) as trainer:
        weights = {0: (1, 1), 1: (0, 0), 2: (1, 2), 3: (1, 1)}
        agents.behave = lambda event, request: agents.complete(event, request, policy=weights[number(request)])
        await trainer.submit(tasks(2), group_size=2)
        await until_ended(trainer)
        known = await take(trainer, groups=1, max_lag=0)
        assert [agents.numbers[group] for group in ids(known)] == [1]
        unannounced = "1 of what has ended is of policy version 1, and 0 was announced last: call policy_updated"
        with pytest.raises(FeedStarved, match=unannounced):
            await take(trainer, groups=1, max_lag=0, patience_s=0.2)
        await trainer.policy_updated(1)
        assert (await take(trainer, groups=1, max_lag=0)).lags == {0: 2}
        await trainer.submit(tasks(1, first=2), group_size=2)
        await trainer.submit(tasks(1, first=3), group_size=2)
        await until_ended(trainer)
        with pytest.raises(FeedStarved, match="1 of what has ended is of policy version 2, and 1 was announced last"):
            await take(trainer, groups=1, max_lag=1, order="fifo", patience_s=0.2)
        await trainer.policy_updated(2)
        ordered = [await take(trainer, groups=1, max_lag=1, order="fifo") for _ in range(2)]
        assert [agents.numbers[batch.groups[0].id] for batch in ordered] == [2, 3]
        assert trainer.state().dropped == {}


async def test_f3_what_a_judge_wrote_makes_no_group_stale_and_fills_no_batch(server: str, config: LogConfig) -> None:
    """F3: its engine's version never rises; and a batch of tokens is of those that are trained on."""
    async with deployed(server, config) as agents, connected(server, config, max_lag=1, groups=4) as trainer:
        judged = {
            "policy": ModelStats(captured=1, generated=10, policy=(5, 5)),
            "judge": ModelStats(captured=1, generated=500, policy=(0, 0)),
        }
        agents.behave = lambda event, request: agents.complete(event, request, policy=(0, 5), by_model=judged)
        await trainer.policy_updated(5)
        await trainer.submit(tasks(3), group_size=2)
        batch = await take(trainer, tokens=40)
        assert [group.lag for group in batch.groups] == [0, 0]
        assert [(rollout.tokens, rollout.versions, rollout.trainable) for rollout in batch.rollouts] == [
            (10, (5, 5), True)
        ] * 4


async def test_policy_versions_only_rise_and_are_in_the_log(server: str, config: LogConfig) -> None:
    async with deployed(server, config, models=("policy", "judge")):
        with pytest.raises(UsageError, match=r"which models are trained\? Name them with models="):
            async with connected(server, config):
                pass
        async with connected(server, config, models=["policy"]) as trainer:
            async with trainer.weights_changing(3):
                pass
            await trainer.policy_updated(3)
            with pytest.raises(ValueError, match="policy version 2 is older than 3"):
                await trainer.policy_updated(2)
            for none in (-1, 2**31, 4.0, "5", True):
                with pytest.raises(ValueError, match="a policy version is a whole number from 0 to"):
                    await trainer.policy_updated(none)
            with pytest.raises(ValueError, match="judges: not among the models that are trained"):
                await trainer.policy_updated(4, models=["judges"])
        async with connected(server, config, models=["policy"]) as trainer:
            assert trainer.version == 3
