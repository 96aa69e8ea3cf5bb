"""What is one row of exported samples: a sample, or several packed into one sequence? Pure.

A row is a flat record of numbers, texts and arrays, the same in every file format. Called by `export`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from contracts.samples import Sample

OPEN_ROWS: Final = 64
"""Packed rows that are not full and wait for a sample that fits."""

Row = Mapping[str, Any]
"""By column: a number, a text, an array, or a list of texts."""


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a sample's rollout beside its tokens."""

    run_id: str
    agent: str
    group: str
    """The rollouts of one group are compared with each other."""
    task_index: int
    rollout_index: int
    reward: float
    reward_components: str
    """JSON object of the verifier's named parts of the reward; `{}` where it has none."""


def sample_row(sample: Sample, scored: Scored) -> Row:
    """The row of one sample."""
    return {
        "rollout_id": sample.rollout_id,
        "branch": sample.branch,
        **msgspec.structs.asdict(scored),
        "model": sample.model,
        "calls": list(sample.calls),
        "tokens": sample.tokens,
        "mask": sample.mask,
        "logprobs": sample.logprobs,
        "versions": sample.versions,
        "turns": np.array(sample.turns, np.int32).reshape(-1),
        "tokenizer": sample.tokenizer,
        "template": sample.template,
        "truncated": sample.truncated,
    }


@dataclass
class _Open:
    samples: list[tuple[Sample, Scored]] = field(default_factory=list)
    length: int = 0


class Packer:
    """Puts whole samples into rows of at most so many tokens, each into the fullest open row that has room."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._open: list[_Open] = []
        self.too_long: list[str] = []
        """`<rollout>/<branch>` of samples that are longer than a row: they are in none."""

    def add(self, sample: Sample, scored: Scored) -> Iterator[Row]:
        """Takes a sample; gives the row that had to make room for it, if any."""
        size = len(sample.tokens)
        if size > self._length:
            self.too_long.append(f"{sample.rollout_id}/{sample.branch}")
            return
        fitting = [each for each in self._open if each.length + size <= self._length]
        row = max(fitting, key=lambda each: each.length, default=None)
        if row is None:
            row = _Open()
            self._open.append(row)
        row.samples.append((sample, scored))
        row.length += size
        if len(self._open) > OPEN_ROWS or row.length == self._length:
            fullest = max(self._open, key=lambda each: each.length)
            self._open.remove(fullest)
            yield packed_row(fullest.samples)

    def rest(self) -> Iterator[Row]:
        """The rows that are still open."""
        yield from (packed_row(each.samples) for each in self._open)
        self._open = []


def packed_row(samples: Sequence[tuple[Sample, Scored]]) -> Row:
    """The row of several samples, one behind the other: sample i from `boundaries[i]` to before `boundaries[i + 1]`."""
    lengths = [len(sample.tokens) for sample, _ in samples]
    return {
        "boundaries": np.concatenate(([0], np.cumsum(lengths))).astype(np.int32),
        "tokens": _joined(sample.tokens for sample, _ in samples),
        "position_ids": _joined(np.arange(length, dtype=np.int32) for length in lengths),
        "mask": _joined(sample.mask for sample, _ in samples),
        "logprobs": _joined(sample.logprobs for sample, _ in samples),
        "versions": _joined(sample.versions for sample, _ in samples),
        "rollout_id": [sample.rollout_id for sample, _ in samples],
        "branch": np.array([sample.branch for sample, _ in samples], np.int32),
        "model": [sample.model for sample, _ in samples],
        "tokenizer": [sample.tokenizer for sample, _ in samples],
        "template": [sample.template for sample, _ in samples],
        "truncated": np.array([sample.truncated for sample, _ in samples], np.bool_),
        "run_id": [scored.run_id for _, scored in samples],
        "agent": [scored.agent for _, scored in samples],
        "group": [scored.group for _, scored in samples],
        "task_index": np.array([scored.task_index for _, scored in samples], np.int64),
        "rollout_index": np.array([scored.rollout_index for _, scored in samples], np.int32),
        "reward": np.array([scored.reward for _, scored in samples], np.float64),
        "reward_components": [scored.reward_components for _, scored in samples],
    }


def _joined(arrays: Iterable[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return np.concatenate(list(arrays))
