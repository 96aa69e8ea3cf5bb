"""AReaL: samples as the tensors that a workflow's `arun_episode` returns.

Arrays of numpy, `[samples, tokens]`, padded at the end; `torch.from_numpy` makes tensors of them without a copy. Pure.
"""

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from contracts.tokens import UNSAMPLED
from orchestrator.adapters.trained import Trained


class Trajectories(TypedDict):
    """One row a sample."""

    input_ids: npt.NDArray[np.int32]
    """0 where a row is padded."""
    loss_mask: npt.NDArray[np.int32]
    logprobs: npt.NDArray[np.float32]
    versions: npt.NDArray[np.int32]
    """-1 where a token was not sampled."""
    attention_mask: npt.NDArray[np.bool_]
    """False where a row is padded."""
    rewards: npt.NDArray[np.float32]
    """One a sample."""


def trajectories(batch: Sequence[Trained]) -> Trajectories | None:
    """The tensors of a batch; None, which AReaL takes as "nothing to train on", where it is empty."""
    if not batch:
        return None
    samples = [trained.sample for trained in batch]
    return Trajectories(
        input_ids=_padded([sample.tokens for sample in samples], np.int32, 0),
        loss_mask=_padded([sample.mask for sample in samples], np.int32, 0),
        logprobs=_padded([sample.logprobs for sample in samples], np.float32, 0),
        versions=_padded([sample.versions for sample in samples], np.int32, UNSAMPLED),
        attention_mask=_padded([np.ones(len(sample.tokens)) for sample in samples], np.bool_, 0),
        rewards=np.array([trained.reward for trained in batch], np.float32),
    )


def _padded(rows: Sequence[npt.NDArray[Any]], kind: type[np.generic], fill: int) -> npt.NDArray[Any]:
    found = np.full((len(rows), max(map(len, rows))), fill, kind)
    for row, values in zip(found, rows, strict=True):
        row[: len(values)] = values
    return found
