"""How much better is each rollout of a group than the group? Pure.

The advantage of group-relative policy optimization (Shao et al., "DeepSeekMath", 2024): reward minus the group's mean,
divided by its standard deviation if wanted; without that division as in Dr. GRPO (Liu et al., 2025).
"""

import statistics
from collections.abc import Sequence
from typing import Final

EPSILON: Final = 1e-6
"""Added to the standard deviation, so that equal rewards have advantages of 0."""


def group_advantages(rewards: Sequence[float | None], *, normalize: bool = False) -> list[float | None]:
    """The advantage of each rollout; None for those without a reward, which count for nothing."""
    known = [reward for reward in rewards if reward is not None]
    if not known:
        return [None] * len(rewards)
    mean = statistics.fmean(known)
    scale = statistics.pstdev(known) + EPSILON if normalize else 1.0
    return [None if reward is None else (reward - mean) / scale for reward in rewards]


def without_variance(rewards: Sequence[float]) -> bool:
    """Whether a group teaches nothing: all of its rewards are equal, or there is only one."""
    return not rewards or min(rewards) == max(rewards)
