"""The loop that docs/training.md shows trains."""

import asyncio
import re
from pathlib import Path
from typing import Any

import numpy as np

from bus import LogConfig
from contracts.events import Event
from contracts.rollouts import RolloutRequest
from contracts.samples import Sample
from contracts.tokens import Capture, PolicySpan, pack_ids, pack_logprobs
from tests.bus.trainers import deployed, tasks

PAGE = Path(__file__).parents[2] / "docs" / "training.md"


class Learner:
    """Takes note of what it is given."""

    def __init__(self) -> None:
        self.steps: list[list[tuple[Sample, float]]] = []
        self.loaded = 0

    def step(self, examples: list[tuple[Sample, float]]) -> None:
        self.steps.append(examples)

    async def load_weights_into_engine(self) -> None:
        self.loaded += 1


async def test_the_loop_of_the_page_trains_on_what_was_sampled(server: str, config: LogConfig) -> None:
    (source,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    namespace: dict[str, Any] = {}
    exec(source.replace('run="grpo-1"', f'run="grpo-1", namespace="{config.namespace}"'), namespace)
    learner = Learner()
    async with deployed(server, config) as agents:

        async def behave(event: Event, request: RolloutRequest) -> None:
            await agents.call(event, request, capture_of(request))
            await agents.complete(event, request)

        agents.behave = behave
        async with asyncio.timeout(60):
            await namespace["train"](server, tasks(40), learner, 3)
    assert learner.loaded == len(learner.steps) == 3
    assert [len(examples) for examples in learner.steps] == [16 * 8] * 3
    for sample, advantage in (example for step in learner.steps for example in step):
        index = round(advantage + 3.5)
        assert sample.tokens.tolist() == [1, 2, 100 + index, 200 + index]
        assert sample.mask.tolist() == [False, False, True, True]
        assert np.allclose(sample.logprobs, [0, 0, -0.5, -0.25])


def capture_of(request: RolloutRequest) -> Capture:
    version = request.policy_version or 0
    return Capture(
        prompt=pack_ids([1, 2]),
        generated=pack_ids([100 + request.rollout_index, 200 + request.rollout_index]),
        logprobs=pack_logprobs([-0.5, -0.25]),
        spans=(PolicySpan(version, 2),),
        policy=(version, version),
    )
