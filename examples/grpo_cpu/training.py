"""How does a policy learn from rollouts that go on meanwhile? The loop of an asynchronous trainer.

Rollouts are asked for as far as the staleness bound allows, by a task beside the loop. The loop takes a batch, learns
from it in a thread, and gives the new weights to the engine between two tokens of whatever it is generating. With a
bound of 0 it is the synchronous loop: nothing is asked for until the weights are there that everything waits for.
Called by `learn.py`. It knows no environment.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

from contracts.base import JsonObject
from contracts.samples import Sample
from examples.grpo_cpu.curves import Curves, Depth, Step
from examples.grpo_cpu.engine_process import EngineProcess
from examples.grpo_cpu.learner import Learner, Valued
from examples.grpo_cpu.weights import Weights
from orchestrator.delivered import Batch, Finished
from orchestrator.trainer import Trainer

GROUP: Final = 8
"""Rollouts of one task."""
LOOK_S: Final = 0.5
"""Seconds between two looks at the queues."""

OnStep = Callable[[Curves], None]


class Training:
    """A trainer, a learner and an engine at work."""

    def __init__(self, trainer: Trainer, learner: Learner, engine: EngineProcess, weights: Weights) -> None:
        self._trainer, self._learner, self._engine, self._weights = trainer, learner, engine, weights
        self._began = 0.0
        self.curves = Curves()

    async def run(self, tasks: Iterable[JsonObject], on_step: OnStep) -> None:
        """Trains on these tasks, each as a group of rollouts, once; told of each step."""
        self._began = time.perf_counter()
        async with asyncio.TaskGroup() as beside:
            watching = beside.create_task(self._watch())
            beside.create_task(self._submit(tasks))
            busy_s = 0.0
            async for batch in self._trainer.feed():
                await self._step(batch)
                if len(self.curves.steps) == 1:
                    busy_s = (await self._engine.load()).busy_s
                on_step(self.curves)
            busy_s = (await self._engine.load()).busy_s - busy_s
            self.curves.engine_busy = busy_s / self.curves.seconds if self.curves.seconds else 0.0
            watching.cancel()

    async def _submit(self, tasks: Iterable[JsonObject]) -> None:
        await self._trainer.submit(tasks, group_size=GROUP)
        self._trainer.no_more_tasks()

    async def _step(self, batch: Batch) -> None:
        valued = await _valued(batch)
        update = await asyncio.to_thread(self._learner.update, valued)
        version = self._trainer.version + 1
        path = self._weights.save(version, self._learner.state)
        await batch.commit()
        async with self._trainer.weights_changing(version):
            await self._engine.swap(path, version)
        scored = [rollout for rollout in batch.rollouts if rollout.reward is not None]
        rewards = [rollout.reward or 0.0 for rollout in scored]
        self.curves.steps.append(
            Step(
                step=len(self.curves.steps),
                at_s=time.perf_counter() - self._began,
                version=batch.version,
                reward=sum(rewards) / max(len(rewards), 1),
                first=[reward for rollout, reward in zip(scored, rewards, strict=True) if rollout.versions == (0, 0)],
                rollouts=len(scored),
                without_reward=sum(1 for _ in batch.rollouts) - len(scored),
                lags=dict(batch.lags),
                straddling=sum(rollout.versions[0] != rollout.versions[1] for rollout in scored),
                tokens=update.tokens,
                clipped=update.clipped,
                drift=update.drift,
                train_s=update.seconds,
            )
        )

    async def _watch(self) -> None:
        with suppress(asyncio.CancelledError):
            while True:
                state, load = self._trainer.state(), await self._engine.load()
                self.curves.depths.append(
                    Depth(
                        at_s=time.perf_counter() - self._began,
                        waiting=state.waiting * GROUP,
                        unfinished=state.unfinished_rollouts,
                        generating=load.running + load.waiting,
                    )
                )
                await asyncio.sleep(LOOK_S)


async def _valued(batch: Batch) -> list[Valued]:
    """The samples of a batch, each with its rollout's advantage in its group."""
    worth: list[tuple[Finished, float]] = []
    for group in batch.groups:
        for rollout, advantage in zip(group.rollouts, group.advantages(normalize=True), strict=True):
            if advantage is not None:
                worth.append((rollout, advantage))
    found = await asyncio.gather(*(rollout.samples() for rollout, _ in worth))
    return [
        Valued(sample, advantage)
        for samples, (_, advantage) in zip(found, worth, strict=True)
        for sample in _trainable(samples.samples)
    ]


def _trainable(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Those with a version for every token: others could not be checked, and this engine gives it always."""
    return [sample for sample in samples if sample.trained and int(sample.versions[sample.mask].min()) >= 0]
