"""F1: a trainer that nothing can be delivered to any more is told, and stops asking."""

import asyncio
from itertools import count
from typing import Any

import pytest

from bus import LogConfig
from components.workers.cancellations import cancel_run
from orchestrator import Trainer
from orchestrator.errors import FeedStarved, RunCancelled
from tests.bus.trainers import deployed, tasks

PATIENCE_S = 30.0


def connected(server: str, config: LogConfig, **options: Any) -> Any:
    return Trainer.connect(server, run="grpo", namespace=config.namespace, **options)


async def submit(trainer: Trainer) -> None:
    """For ever, as a trainer does."""
    for epoch in count():
        await trainer.submit(tasks(50), group_size=2, epoch=epoch)


async def test_a_feed_whose_rollouts_all_fail_says_so_and_no_more_is_asked_for(server: str, config: LogConfig) -> None:
    """However many rollouts end meanwhile: within its patience there is an error with the reasons."""
    async with deployed(server, config) as agents, connected(server, config, groups=2, max_lag=1) as trainer:
        agents.behave = lambda event, _: agents.fail(event)
        submitting = asyncio.create_task(submit(trainer))
        told = r"no batch of 2 groups: nothing that it lacks has come for 0.5 s \(patience_s\); .*"
        told += r"while this batch was awaited: \d+ no_reward; the last that failed of these was grpo-.*agent_error: it"
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(FeedStarved, match=told) as starved:
                await anext(trainer.feed(drop_zero_variance=True, patience_s=0.5))
        assert starved.value.dropped == trainer.state().dropped
        submitting.cancel()
        await asyncio.gather(submitting, return_exceptions=True)


@pytest.mark.parametrize("by", ["trainer", "operator"])
async def test_a_run_that_was_cancelled_ends_its_trainers(server: str, config: LogConfig, by: str) -> None:
    """What waits for room, and what waits for a batch, hears why; so does who comes later."""
    cancelled = "run grpo was cancelled: it learns nothing; nothing more comes of it.*train on under another run"
    async with deployed(server, config) as agents, connected(server, config, feed="other") as other:
        async with connected(server, config, groups=2, max_lag=1) as trainer:
            submitting = asyncio.create_task(submit(trainer))
            await (await anext(trainer.feed())).commit()
            waiting = [asyncio.create_task(anext(each.feed(groups=9))) for each in (trainer, other)]
            if by == "trainer":
                await trainer.cancel(reason="it learns nothing")
            else:
                await cancel_run(agents.bus, "grpo", "it learns nothing")
            for one in (submitting, *waiting):
                async with asyncio.timeout(PATIENCE_S):
                    with pytest.raises(RunCancelled, match=cancelled):
                        await one
        async with connected(server, config) as trainer:
            with pytest.raises(RunCancelled, match=cancelled):
                await trainer.submit(tasks(1), group_size=2, epoch=9)
            with pytest.raises(RunCancelled, match=cancelled):
                await anext(trainer.feed(groups=1))
