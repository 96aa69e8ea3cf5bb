"""What do all trainers want of a sample beside its tokens?

Its rollout's reward, its advantage in the group, and where it belongs. Made from a group of the feed; every adapter
maps this and nothing else, so what a trainer gets follows from the sample alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from contracts.rollouts import RolloutStats
from contracts.samples import Sample
from contracts.tokens import UNSAMPLED
from orchestrator.delivered import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A sample with what it is trained towards."""

    sample: Sample
    reward: float
    """Of its rollout: all samples of a rollout have the same."""
    advantage: float
    """Of its rollout in the group."""
    group: str
    """ID of the group."""
    task_index: int
    rollout_index: int
    """Of the rollout in its group."""
    last: bool
    """The last sample of its rollout."""
    stats: RolloutStats | None = None

    @property
    def group_number(self) -> int:
        """The group as a number, below 2**56. A task's index would not do: it is one in every epoch."""
        return int.from_bytes(blake2b(self.group.encode(), digest_size=7).digest(), "big")

    @property
    def versions(self) -> tuple[int, int]:
        """The oldest and the newest policy version that sampled a token to train on; -1 where one is not known."""
        found = self.sample.versions[self.sample.mask]
        return int(found.min()), int(found.max())


class Halves(NamedTuple):
    """A sample as prompt and response. The response begins with the first token that is trained on."""

    prompt: list[int]
    response: list[int]
    mask: list[int]
    """Of the response: 1 where a token is trained on."""
    logprobs: list[float]
    """Of the response; 0 where the mask is 0."""


async def read_group(
    group: Group,
    *,
    normalize: bool = False,
    models: Sequence[str] | None = None,
    tokenizer: str = "",
    template: str = "",
) -> list[Trained]:
    """The samples of a group's completed rollouts, in their order.

    Args:
        group: as the feed gave it.
        normalize: divide advantages by the group's standard deviation.
        models: names of the model instances that are trained; all, if not given.
        tokenizer: digest of the tokenizer that the tokens are read under; not looked at, if not given.
        template: digest of the chat template, likewise.

    Raises `OtherTokenizer`, `BusError`.
    """
    found: list[Trained] = []
    for rollout, advantage in zip(group.rollouts, group.advantages(normalize=normalize), strict=True):
        if rollout.reward is None or advantage is None:
            continue
        samples = await rollout.samples()
        samples.check(tokenizer=tokenizer, template=template)
        wanted = [sample for sample in samples.samples if models is None or sample.model in models]
        found += [
            Trained(
                sample=sample,
                reward=rollout.reward,
                advantage=advantage,
                group=group.id,
                task_index=group.task_index,
                rollout_index=rollout.index,
                last=sample is wanted[-1],
                stats=rollout.stats,
            )
            for sample in wanted
        ]
    return found


def halves(sample: Sample) -> Halves:
    """The sample as prompt and response."""
    start = sample.start
    return Halves(
        prompt=sample.tokens[:start].tolist(),
        response=sample.tokens[start:].tolist(),
        mask=sample.mask[start:].astype(int).tolist(),
        logprobs=sample.logprobs[start:].tolist(),
    )


def known_versions(sample: Sample) -> list[int]:
    """The policy versions of its calls, in order; a version that goes on is there once."""
    versions: list[int] = []
    for version in sample.versions[sample.mask].tolist():
        if version != UNSAMPLED and (not versions or versions[-1] != version):
            versions.append(version)
    return versions
