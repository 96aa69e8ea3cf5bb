"""Are the recorded log-probabilities those of the weights that they are stamped with? Every token of every sample.

The proof from end to end. Samples are read from the log again; for each policy version that sampled any of their tokens
its stored weights are loaded, the whole sample goes through the model, and the outcome is compared with what the engine
recorded while it generated, token by token, in a batch that others joined and left. Called by `learn.py` at the end.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import torch

from contracts.samples import Sample
from examples.grpo_cpu.learner import padded
from examples.grpo_cpu.model import Policy
from examples.grpo_cpu.weights import State

PART: Final = 64
"""Samples that are computed at once."""


class Exactness(NamedTuple):
    """How the recorded and the recomputed log-probabilities agree."""

    tokens: int
    """That were compared: every one that was sampled."""
    max_error: float
    """Largest difference, nats."""
    straddling: int
    """Samples that several versions generated."""


@torch.inference_mode()
def exactness(samples: Sequence[Sample], policy: Policy, weights: Callable[[int], State]) -> Exactness:
    """Compares them.

    Args:
        samples: each token under a mask is compared.
        policy: computes; its weights are replaced.
        weights: the stored weights of a version.
    """
    by_version: dict[int, list[Sample]] = {}
    for sample in samples:
        for version in set(sample.versions[sample.mask].tolist()):
            by_version.setdefault(version, []).append(sample)
    tokens, largest = 0, 0.0
    for version, theirs in sorted(by_version.items()):
        policy.load_state_dict(weights(version))
        theirs.sort(key=lambda sample: len(sample.tokens))
        for start in range(0, len(theirs), PART):
            part = theirs[start : start + PART]
            ids, mask, recorded = padded(part)
            versions = torch.full_like(ids, -1)
            for row, sample in enumerate(part):
                versions[row, : len(sample.tokens)] = torch.tensor(sample.versions.tolist())
            own = (mask & (versions == version))[:, 1:]
            errors = (policy.logprobs(ids) - recorded[:, 1:])[own].abs()
            tokens += len(errors)
            largest = max(largest, float(errors.max()) if len(errors) else 0.0)
    straddling = sum(len(set(sample.versions[sample.mask].tolist())) > 1 for sample in samples)
    return Exactness(tokens, largest, straddling)
