"""What does GRPO minimise? The clipped loss of sampled tokens, with an importance weight each. Pure.

A token was sampled by weights that are up to some versions behind the ones that learn. Its importance weight is its
probability now over its probability then, as the engine recorded it, so no third set of weights is needed. The loss is
PPO's clipped one (Schulman et al. 2017) with group-relative advantages (GRPO: Shao et al. 2024), a wider clip above
than below and a mean over all tokens of the batch (DAPO: Yu et al. 2025).
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """How far a token's importance weight counts."""

    below: float = 0.2
    above: float = 0.28


@dataclass(frozen=True, slots=True)
class Loss:
    """What a batch, or a part of one, comes to. Sums, so that parts add up."""

    total: Tensor
    """Sum of the loss over the sampled tokens; backpropagate it."""
    tokens: int
    clipped: float
    """Tokens whose weight was beyond the clip, so that they teach nothing."""
    drift: float
    """Sum of an estimate of how far the policy has gone from the one that sampled (Schulman's k3, in nats)."""


def grpo_loss(now: Tensor, then: Tensor, advantages: Tensor, mask: Tensor, clip: Clip) -> Loss:
    """The loss of some tokens.

    Args:
        now: log-probabilities under the weights that learn, [sequences, tokens].
        then: log-probabilities under the weights that sampled.
        advantages: of each sequence, [sequences].
        mask: True for the tokens that were sampled.
        clip: limits of the importance weights.
    """
    difference = torch.where(mask, now - then, 0.0)
    weight = difference.exp()
    scaled = advantages[:, None] * weight
    limited = advantages[:, None] * weight.clamp(1 - clip.below, 1 + clip.above)
    total = -(torch.minimum(scaled, limited) * mask).sum()
    with torch.no_grad():
        clipped = ((limited < scaled) & mask).sum().item()
        drift = (((-difference).exp() - 1 + difference) * mask).sum().item()
    return Loss(total, int(mask.sum()), clipped, drift)
