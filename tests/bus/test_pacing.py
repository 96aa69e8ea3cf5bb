"""F5: a trainer is paced by what it asks for, so that slow tasks are trained on as often as fast ones."""

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from random import Random
from typing import Literal

import pytest

from bus import LogConfig
from contracts.events import Event
from contracts.rollouts import RolloutRequest
from orchestrator import Trainer
from tests.bus.trainers import deployed, number, tasks

UNIT_S = 0.002
VERSIONS = 40
GROUPS = 8
MAX_LAG = 4


def distance(one: Sequence[int], other: Sequence[int]) -> float:
    """The Kolmogorov-Smirnov statistic of two samples."""
    first, second = sorted(one), sorted(other)
    at = sorted({*first, *second})
    return max(abs(bisect_right(first, x) / len(first) - bisect_right(second, x) / len(second)) for x in at)


@pytest.mark.parametrize("order", ["finish", "fifo"])
async def test_f5_lengths_of_what_is_delivered_are_those_of_what_was_asked_for(
    server: str, config: LogConfig, order: Literal["finish", "fifo"]
) -> None:
    """F5: rollouts of 1 to 60 units, S = 4, a policy version for each batch: nothing is discarded, in either order."""
    lengths = [Random(task).randint(1, 60) for task in range(1000)]
    asked: dict[str, tuple[int, int]] = {}
    """Of each group, the version when it was asked for and its length."""
    async with deployed(server, config) as agents:

        async def behave(event: Event, request: RolloutRequest) -> None:
            assert request.policy_version is not None
            asked[request.group] = request.policy_version, lengths[number(request)]
            await asyncio.sleep(UNIT_S * lengths[number(request)])
            await agents.complete(event, request)

        agents.behave = behave
        options = {"run": "grpo", "namespace": config.namespace}
        async with Trainer.connect(server, groups=GROUPS, max_lag=MAX_LAG, **options) as trainer:  # type: ignore[arg-type]
            submitting = asyncio.create_task(trainer.submit(tasks(len(lengths)), group_size=1))
            delivered: dict[str, int] = {}
            async with asyncio.timeout(120):
                async for batch in trainer.feed(order=order):
                    delivered |= {group.id: group.lag for group in batch.groups}
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
