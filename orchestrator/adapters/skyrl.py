"""SkyRL: samples as a `GeneratorOutput` (`skyrl.train.generators.base`).

A rollout is a trajectory. Where it has several branches, they are the steps of it, as SkyRL's step-wise training takes
them (`generator.step_wise_trajectories`): `is_last_step` marks the last. It is there also where each rollout has one
sample, since SkyRL looks for it in each batch then, and otherwise in none. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from orchestrator.adapters.trained import Trained, halves


@dataclass
class TrajectoryID:
    """Which rollout of which task; SkyRL's own class has the same fields."""

    instance_id: str
    """ID of the group."""
    repetition_id: int

    def to_string(self) -> str:
        """Both in one."""
        return f"{self.instance_id}_{self.repetition_id}"


class GeneratorOutput(TypedDict):
    """One element a sample in each list."""

    prompt_token_ids: list[list[int]]
    response_ids: list[list[int]]
    rewards: list[float]
    loss_masks: list[list[int]]
    stop_reasons: list[str] | None
    rollout_metrics: dict[str, float] | None
    rollout_logprobs: list[list[float]] | None
    trajectory_ids: list[TrajectoryID] | None
    trajectory_generation_times: list[float] | None
    """Seconds that its rollout took."""
    rollout_expert_indices: None
    is_last_step: list[bool]
    env_metrics: None
    pixel_values: None
    image_grid_thw: None


def generator_output(batch: Sequence[Trained]) -> GeneratorOutput:
    """The output of a batch; the samples of a rollout stand behind each other, as `read_group` gives them."""
    parts = [halves(trained.sample) for trained in batch]
    times = [trained.stats.timings for trained in batch if trained.stats is not None]
    return GeneratorOutput(
        prompt_token_ids=[each.prompt for each in parts],
        response_ids=[each.response for each in parts],
        rewards=[trained.reward for trained in batch],
        loss_masks=[each.mask for each in parts],
        stop_reasons=["length" if trained.sample.truncated else "stop" for trained in batch],
        rollout_metrics=None,
        rollout_logprobs=[each.logprobs for each in parts],
        trajectory_ids=[TrajectoryID(trained.group, trained.rollout_index) for trained in batch],
        trajectory_generation_times=[each.total_s - each.queue_s for each in times]
        if len(times) == len(batch)
        else None,
        rollout_expert_indices=None,
        is_last_step=[trained.last for trained in batch],
        env_metrics=None,
        pixel_values=None,
        image_grid_thw=None,
    )
