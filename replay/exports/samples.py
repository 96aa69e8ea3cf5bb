"""The training samples of a rollout, one line of JSON each, with the columns of `jetgym export samples`.

Called by `replay export --format samples`. Pure; the trajectory has its captures among its blobs. The reward is the
latest one, with its components. What needs all of a run, packed rows and binary files, the other command makes.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from contracts.errors import ContractError
from contracts.rollouts import RolloutResult
from contracts.samples import Sample, build_samples
from replay.errors import CannotExport
from replay.trajectory import Trajectory


def sample_lines(trajectory: Trajectory) -> Iterator[bytes]:
    """The lines, with their ends. Raises `CannotExport` where there is nothing to train on."""
    rollout, outcome = trajectory.rollout_id, trajectory.outcome
    if not isinstance(outcome, RolloutResult):
        raise CannotExport(f"rollout {rollout} is {trajectory.state}: it has no reward to train on")
    try:
        found = build_samples(trajectory.events, trajectory.blobs)
    except ContractError as error:
        raise CannotExport(f"rollout {rollout}: {error}") from error
    if not found.trainable:
        why = next((call.why for call in found.refused), "none was captured (`token_ids: true` in the model's config)")
        raise CannotExport(f"rollout {rollout} has no token to train on: {why}")
    request = trajectory.request
    scored = {
        "run_id": request.run_id,
        "agent": request.agent,
        "group": request.group or f"{request.run_id}-{request.task_index:05d}",
        "task_index": request.task_index,
        "rollout_index": request.rollout_index,
        "reward": trajectory.reward,
        "reward_components": bytes(trajectory.extra.get("reward_components", b"{}")).decode(),
    }
    for sample in found.samples:
        yield msgspec.json.encode(_line(sample, scored)) + b"\n"


def _line(sample: Sample, scored: dict[str, Any]) -> dict[str, Any]:
    return {
        "rollout_id": sample.rollout_id,
        "branch": sample.branch,
        **scored,
        "model": sample.model,
        "calls": sample.calls,
        "tokens": sample.tokens.tolist(),
        "mask": sample.mask.tolist(),
        "logprobs": sample.logprobs.tolist(),
        "versions": sample.versions.tolist(),
        "turns": np.array(sample.turns, np.int32).reshape(-1).tolist(),
        "tokenizer": sample.tokenizer,
        "template": sample.template,
        "truncated": sample.truncated,
    }
