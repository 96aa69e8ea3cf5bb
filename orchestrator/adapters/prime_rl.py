"""prime-rl: a sample as a `TrainingSample` (`prime_rl.transport.types`).

These structs are arrays on the wire: encoded as MessagePack they are byte for byte what prime-rl's own are, so a batch
can be sent to its trainer without importing it. Their fields and the order of these are therefore prime-rl's. Pure.
"""

import msgspec

from orchestrator.adapters.trained import Trained


class TrainingAdvantage(msgspec.Struct, array_like=True, gc=False, omit_defaults=True):
    """What a loss makes of each token."""

    loss: str
    values: list[float]
    mask: list[bool]


class TrainingSample(msgspec.Struct, array_like=True, gc=False, omit_defaults=True):
    """One branch as a flat sequence; the lists of a token each are as long as `token_ids`."""

    token_ids: list[int]
    mask: list[bool]
    logprobs: list[float]
    temperatures: list[float]
    env_name: str
    advantages: list[TrainingAdvantage]
    reward: float | None = None
    mm_kwargs: None = None
    routed_experts: None = None
    mm_token_type_ids: None = None


class TrainingBatch(msgspec.Struct, array_like=True, gc=False, omit_defaults=True):
    """What the orchestrator of prime-rl hands on for one step."""

    examples: list[TrainingSample]
    step: int
    run_idx: int | None = None


def training_sample(trained: Trained, *, env_name: str, temperature: float = 1.0, loss: str = "rl") -> TrainingSample:
    """The training sample of one sample.

    Args:
        trained: what is trained on.
        env_name: what prime-rl calls the environment in its metrics.
        temperature: that the tokens were sampled with.
        loss: name of the loss that takes the advantage.
    """
    sample = trained.sample
    mask, length = sample.mask.tolist(), len(sample.tokens)
    return TrainingSample(
        token_ids=sample.tokens.tolist(),
        mask=mask,
        logprobs=sample.logprobs.tolist(),
        temperatures=[temperature] * length,
        env_name=env_name,
        advantages=[TrainingAdvantage(loss, [trained.advantage] * length, mask)],
        reward=trained.reward,
    )
