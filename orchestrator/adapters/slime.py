"""slime: a sample as the fields of its `Sample` (`slime.utils.types`).

`Sample.from_dict(slime_sample(trained))` in slime's process. Texts are left out: no text is made of tokens here, and
slime trains on tokens. Pure.
"""

from typing import Any, TypedDict

from orchestrator.adapters.trained import Trained, halves, known_versions


class SlimeSample(TypedDict):
    """The fields of slime's class that a rollout has."""

    group_index: int
    index: int
    tokens: list[int]
    """Prompt and response."""
    response_length: int
    """Tokens of the response, which begins with the first one that is trained on."""
    reward: float
    loss_mask: list[int]
    """Of the response."""
    weight_versions: list[str]
    rollout_log_probs: list[float]
    """Of the response."""
    remove_sample: bool
    status: str
    """`completed` or `truncated`."""
    metadata: dict[str, Any]


def slime_sample(trained: Trained) -> SlimeSample:
    """The fields of one sample."""
    sample, parts = trained.sample, halves(trained.sample)
    return SlimeSample(
        group_index=trained.group_number,
        index=trained.rollout_index,
        tokens=sample.tokens.tolist(),
        response_length=len(parts.response),
        reward=trained.reward,
        loss_mask=parts.mask,
        weight_versions=[str(version) for version in known_versions(sample)],
        rollout_log_probs=parts.logprobs,
        remove_sample=False,
        status="truncated" if sample.truncated else "completed",
        metadata={"rollout_id": sample.rollout_id, "branch": sample.branch, "group": trained.group},
    )
