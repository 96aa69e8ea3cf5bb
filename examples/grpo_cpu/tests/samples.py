"""Makes samples for tests."""

import numpy as np

from contracts.samples import Sample


def sample(tokens: list[int], start: int, logprobs: list[float], versions: list[int]) -> Sample:
    """A sample whose tokens from `start` on were generated."""
    unsampled = [0.0] * start
    return Sample(
        rollout_id="r",
        branch=0,
        model="policy",
        calls=("m_0",),
        tokens=np.array(tokens, np.int32),
        mask=np.array([index >= start for index in range(len(tokens))]),
        logprobs=np.array([*unsampled, *logprobs], np.float32),
        versions=np.array([*[-1] * start, *versions], np.int32),
        turns=((start, len(tokens)),),
        tokenizer="",
        template="",
        truncated=False,
    )
