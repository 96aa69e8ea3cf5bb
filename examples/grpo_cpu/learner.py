"""How do samples change the weights? One step of AdamW on the GRPO loss of a batch.

Called by `learn.py`, in a thread: it knows nothing of rollouts, only of tokens and what they are worth.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from contracts.samples import Sample
from examples.grpo_cpu.loss import Clip, grpo_loss
from examples.grpo_cpu.model import Policy
from examples.grpo_cpu.weights import State

RATE: Final = 5e-4
"""Learning rate."""
PART: Final = 16
"""Samples whose gradients are computed at once; a batch has several parts, of samples of like length."""
LONGEST_STEP: Final = 1.0
"""Bound of the gradient's norm."""


class Valued(NamedTuple):
    """A sample, and how much better its rollout was than its group."""

    sample: Sample
    advantage: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What one step came to."""

    tokens: int
    """Tokens that were trained on, those without an advantage included."""
    clipped: float
    """Share of them whose importance weight was beyond the clip."""
    drift: float
    """Mean divergence from the weights that sampled, nats a token."""
    seconds: float


class Learner:
    """The policy that learns."""

    def __init__(self, policy: Policy, *, rate: float = RATE, clip: Clip | None = None) -> None:
        self._policy, self._clip = policy.train(), clip or Clip()
        self._optimizer = torch.optim.AdamW(policy.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.0)

    @property
    def state(self) -> State:
        """The weights now. They change with the next step: save them first."""
        return self._policy.state_dict()

    def update(self, samples: Sequence[Valued]) -> Update:
        """Takes a step."""
        began = time.perf_counter()
        tokens = sum(valued.sample.trained for valued in samples)
        teaching = sorted((v for v in samples if v.advantage), key=lambda valued: len(valued.sample.tokens))
        clipped = drift = 0.0
        self._optimizer.zero_grad()
        for part in _parts(teaching):
            ids, mask, then = padded([valued.sample for valued in part])
            advantages = torch.tensor([valued.advantage for valued in part])
            loss = grpo_loss(self._policy.logprobs(ids), then[:, 1:], advantages, mask[:, 1:], self._clip)
            (loss.total / tokens).backward()  # type: ignore[no-untyped-call]
            clipped, drift = clipped + loss.clipped, drift + loss.drift
        if teaching:
            torch.nn.utils.clip_grad_norm_(self._policy.parameters(), LONGEST_STEP)
            self._optimizer.step()
        seconds = time.perf_counter() - began
        return Update(tokens=tokens, clipped=clipped / max(tokens, 1), drift=drift / max(tokens, 1), seconds=seconds)


def _parts(samples: Sequence[Valued]) -> Iterator[Sequence[Valued]]:
    for start in range(0, len(samples), PART):
        yield samples[start : start + PART]


def padded(samples: Sequence[Sample]) -> tuple[Tensor, Tensor, Tensor]:
    """Token IDs, mask and log-probabilities of samples, filled up at the right end: [samples, tokens] each."""
    ids, masks, logprobs = (
        [torch.from_numpy(np.array(part)) for part in parts]  # a sample's own arrays cannot be written to
        for parts in zip(*((sample.tokens, sample.mask, sample.logprobs) for sample in samples), strict=True)
    )
    return (
        pad_sequence([each.long() for each in ids], batch_first=True),
        pad_sequence(masks, batch_first=True),
        pad_sequence(logprobs, batch_first=True),
    )
