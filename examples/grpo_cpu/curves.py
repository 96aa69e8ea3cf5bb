"""What is known of a training over time? Steps and queue depths, and the figures made of them.

`training.py` writes it down, `plot.py` shows it, `learn.py` prints the figures. It computes nothing of the training.
"""

import json
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

LAST: Final = 5
"""Steps that the reward at the end is the mean of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One batch that was trained on."""

    step: int
    at_s: float
    """When its weights were in use, since the start."""
    version: int
    """Policy version at delivery; the weights that came of it are the next one."""
    reward: float
    """Mean over its rollouts."""
    first: list[float]
    """Rewards of the rollouts that the very first weights generated alone."""
    rollouts: int
    without_reward: int
    """Rollouts that failed, which are not trained on."""
    lags: dict[int, int]
    """Rollouts by the staleness of their group."""
    straddling: int
    """Rollouts that several versions generated."""
    tokens: int
    clipped: float
    drift: float
    train_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """How much there was of what, at one moment."""

    at_s: float
    waiting: int
    """Rollouts of groups that have ended and wait to be trained on."""
    unfinished: int
    """Rollouts that were asked for and have not ended."""
    generating: int
    """Sequences in the engine's batch, and before it."""


@dataclass(slots=True)
class Curves:
    """One training."""

    steps: list[Step] = field(default_factory=list)
    depths: list[Depth] = field(default_factory=list)
    engine_busy: float = 0.0
    """Share of the time from the first step to the last in which the engine computed."""

    @property
    def reward_start(self) -> float:
        """Mean reward of what the very first weights generated alone."""
        return statistics.fmean([reward for step in self.steps for reward in step.first] or [0.0])

    @property
    def reward_end(self) -> float:
        """Mean reward of the last steps."""
        return statistics.fmean(step.reward for step in self.steps[-LAST:])

    @property
    def max_lag(self) -> int:
        """Largest staleness that was trained on."""
        return max(lag for step in self.steps for lag in step.lags)

    @property
    def straddling(self) -> int:
        """Rollouts that several versions generated."""
        return sum(step.straddling for step in self.steps)

    @property
    def seconds(self) -> float:
        """From the first step's end to the last one's: the start is not counted."""
        return self.steps[-1].at_s - self.steps[0].at_s

    @property
    def trainer_busy(self) -> float:
        """Share of these seconds in which the trainer computed."""
        return sum(step.train_s for step in self.steps[1:]) / self.seconds if self.seconds else 0.0

    def rate(self, steps: int) -> float:
        """Rollouts trained on each second, over the first so many steps; 0 where there are not two."""
        some = self.steps[:steps]
        seconds = some[-1].at_s - some[0].at_s
        return sum(step.rollouts for step in some[1:]) / seconds if seconds else 0.0

    def save(self, path: Path) -> None:
        """Writes everything as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1))
