"""F5: a trainer is paced by what it asks for, so that slow tasks are trained on as often as fast ones."""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from bus import LogConfig
from contracts.events import Event
from contracts.rollouts import RolloutRequest
from orchestrator import Trainer
from orchestrator.delivered import Batch
from orchestrator.errors import FeedStarved
from tests.bus.events import until
from tests.bus.trainers import deployed, number, tasks

UNIT_S = 0.002
VERSIONS = 40
GROUPS = 8
MAX_LAG = 4
TOKENS = 100


def distance(one: Sequence[int], other: Sequence[int]) -> float:
    """The Kolmogorov-Smirnov statistic of two samples."""
    first, second = sorted(one), sorted(other)
    at = sorted({*first, *second})
    return max(abs(bisect_right(first, x) / len(first) - bisect_right(second, x) / len(second)) for x in at)


@pytest.mark.parametrize(
    ("options", "ahead"),
    [
        ({"order": "finish"}, 0),
        ({"order": "fifo"}, 0),
        ({"tokens": TOKENS * GROUPS}, 0),
        ({"rollouts": GROUPS}, 0),
        ({"order": "finish"}, 2),
    ],
    ids=["finish", "fifo", "tokens", "rollouts", "ahead"],
)
async def test_f5_lengths_of_what_is_delivered_are_those_of_what_was_asked_for(
    server: str, config: LogConfig, options: dict[str, Any], ahead: int
) -> None:
    """F5: rollouts of 1 to 60 units, S = 4, a version for each batch: nothing is discarded, in any order or size.

    Nor where batches are taken ahead of training: then nothing is staler than S when it is trained on.
    """
    lengths = [Random(task).randint(1, 60) for task in range(1000)]
    asked: dict[str, tuple[int, int]] = {}
    """Of each group, the version when it was asked for and its length."""
    async with deployed(server, config) as agents:

        async def behave(event: Event, request: RolloutRequest) -> None:
            assert request.policy_version is not None
            asked[request.group] = request.policy_version, lengths[number(request)]
            await asyncio.sleep(UNIT_S * lengths[number(request)])
            await agents.complete(event, request, tokens=TOKENS)

        agents.behave = behave
        pacing = Trainer.connect(server, run="grpo", namespace=config.namespace, groups=GROUPS, max_lag=MAX_LAG)
        async with pacing as trainer:
            submitting = asyncio.create_task(trainer.submit(tasks(len(lengths)), group_size=1))
            delivered: dict[str, int] = {}
            in_hand: deque[Batch] = deque()
            async with asyncio.timeout(120):
                async for taken in trainer.feed(**options):
                    in_hand.append(taken)
                    if len(in_hand) <= ahead:
                        continue
                    batch = in_hand.popleft()
                    waited = trainer.version - batch.version
                    delivered |= {group.id: group.lag + waited for group in batch.groups}
                    await batch.commit()
                    await trainer.policy_updated(trainer.version + 1)
                    if trainer.version == VERSIONS:
                        break
            submitting.cancel()
            await asyncio.gather(submitting, return_exceptions=True)
            assert trainer.state().dropped == {}
    assert max(delivered.values()) <= MAX_LAG
    old = {group for group, (version, _) in asked.items() if version < VERSIONS - MAX_LAG}
    assert old <= delivered.keys()
    got = [asked[group][1] for group in delivered]
    assert len(got) == VERSIONS * GROUPS
    everything = [length for _, length in asked.values()]
    assert distance(got, everything) < 1.36 / len(got) ** 0.5  # of two independent samples: at the level of 5 %


async def end(trainer: Trainer, gate: asyncio.Event) -> None:
    """Lets a rollout end; returns when the trainer knows."""
    before = trainer.state().waiting
    gate.set()
    await until(lambda: trainer.state().waiting > before)


@pytest.mark.parametrize("more", [True, False])
async def test_f3_what_is_in_time_is_not_overtaken_also_at_the_end(server: str, config: LogConfig, more: bool) -> None:
    """With a bound of 1 the first task is due at version 1; at the end of a run the oldest is taken first."""
    gates = [asyncio.Event() for _ in range(5)]
    async with deployed(server, config) as agents:

        async def behave(event: Event, request: RolloutRequest) -> None:
            await gates[number(request)].wait()
            await agents.complete(event, request)

        agents.behave = behave
        async with Trainer.connect(server, run="grpo", namespace=config.namespace, groups=1, max_lag=1) as trainer:
            submitting = asyncio.create_task(trainer.submit(tasks(5 if more else 3), group_size=1))
            taken = []
            for ending in ((1,), (2, 0), ()):
                for task in ending:
                    await end(trainer, gates[task])
                if not more and ending != (1,):
                    await submitting
                    trainer.no_more_tasks()
                async with asyncio.timeout(30):
                    batch = await anext(trainer.feed())
                (group,) = batch.groups
                taken.append((agents.numbers[group.id], group.lag))
                await batch.commit()
                await trainer.policy_updated(trainer.version + 1)
            submitting.cancel()
            await asyncio.gather(submitting, return_exceptions=True)
            assert taken == [(1, 0), (0, 1), (2, 1)]
            assert trainer.state().dropped == {}


async def test_f4_what_is_too_old_is_dropped_though_fewer_wait_than_a_batch_has(server: str, config: LogConfig) -> None:
    """Else what a batch leaves of a group would hold its place in the bound for ever."""
    bounded = Trainer.connect(server, run="grpo", namespace=config.namespace, groups=1, max_lag=0)
    async with deployed(server, config), bounded as trainer, asyncio.timeout(30):
        await trainer.submit(tasks(1), group_size=4)
        await (await anext(trainer.feed(rollouts=3))).commit()
        await until(lambda: not trainer.state().unfinished)
        await trainer.policy_updated(1)
        with pytest.raises(FeedStarved, match="while this batch was awaited: 1 stale; give connect") as starved:
            await anext(trainer.feed(rollouts=3, patience_s=0.2))
        assert starved.value.dropped == trainer.state().dropped == {"stale": 1}
        assert trainer.state().waiting == 0


async def test_a_batch_of_tokens_is_what_there_is_where_no_more_may_be_asked_for(
    server: str, config: LogConfig
) -> None:
    """Else the trainer would wait for what waits for the trainer."""
    async with deployed(server, config) as agents:
        agents.behave = lambda event, request: agents.complete(event, request, tokens=TOKENS)
        async with Trainer.connect(server, run="grpo", namespace=config.namespace, groups=2, max_lag=0) as trainer:
            submitting = asyncio.create_task(trainer.submit(tasks(10), group_size=2))
            async with asyncio.timeout(30):
                batch = await anext(trainer.feed(tokens=1000 * TOKENS))
            assert [len(group.rollouts) for group in batch.groups] == [2, 2]
            submitting.cancel()
            await asyncio.gather(submitting, return_exceptions=True)
