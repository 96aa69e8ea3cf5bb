"""Makes small policies for tests."""

import torch

from examples.grpo_cpu.model import Policy, Shape


def small_policy(vocabulary: int, seed: int = 0, context: int = 64) -> Policy:
    """A policy that prefers some tokens clearly to others, as an untrained one would not."""
    torch.manual_seed(seed)
    policy = Policy(Shape(vocabulary=vocabulary, context=context, width=16, layers=2, heads=2))
    with torch.no_grad():
        for weights in policy.parameters():
            weights.mul_(3)
    return policy
