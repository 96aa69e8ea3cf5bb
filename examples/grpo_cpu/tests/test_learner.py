from dataclasses import replace

import numpy as np
import pytest
import torch

from examples.grpo_cpu.exactness import exactness
from examples.grpo_cpu.learner import Learner, Valued
from examples.grpo_cpu.model import Policy
from examples.grpo_cpu.tests.policies import small_policy
from examples.grpo_cpu.tests.samples import sample


def probable(policy: Policy, tokens: list[int], start: int) -> list[float]:
    with torch.inference_mode():
        found: list[float] = policy.logprobs(torch.tensor([tokens]))[0, start - 1 :].tolist()
    return found


def test_a_step_makes_what_did_better_likelier_and_what_did_worse_less_likely() -> None:
    policy = small_policy(30)
    good, bad = [1, 2, 3, 4, 5], [1, 2, 6, 7]
    before = [sum(probable(policy, tokens, 2)) for tokens in (good, bad)]
    samples = [
        Valued(sample(good, 2, probable(policy, good, 2), [0] * 3), 1.0),
        Valued(sample(bad, 2, probable(policy, bad, 2), [0] * 2), -1.0),
    ]
    update = Learner(policy, rate=1e-3).update(samples)
    after = [sum(probable(policy, tokens, 2)) for tokens in (good, bad)]
    assert after[0] > before[0]
    assert after[1] < before[1]
    assert update.tokens == 5
    assert update.clipped == 0
    assert update.drift == pytest.approx(0, abs=1e-6)


def test_groups_whose_rollouts_did_equally_well_change_nothing() -> None:
    policy = small_policy(30)
    before = [weights.clone() for weights in policy.parameters()]
    update = Learner(policy).update([Valued(sample([1, 2, 3], 1, [-1.0, -1.0], [0, 0]), 0.0)])
    assert update.tokens == 2
    assert all(torch.equal(one, other) for one, other in zip(before, policy.parameters(), strict=True))


def test_every_token_is_compared_with_its_own_version_and_one_wrong_log_probability_is_found() -> None:
    policies = {version: small_policy(30, seed=version) for version in (0, 1)}
    tokens = [1, 2, 3, 4, 5]
    straddling = [*probable(policies[0], tokens, 2)[:1], *probable(policies[1], tokens, 2)[1:]]
    samples = [
        sample(tokens, 2, straddling, [0, 1, 1]),
        sample(tokens[:4], 1, probable(policies[1], tokens[:4], 1), [1, 1, 1]),
    ]

    def weights(version: int) -> dict[str, torch.Tensor]:
        return policies[version].state_dict()

    right = exactness(samples, small_policy(30), weights)
    assert right.tokens == 6
    assert right.max_error < 1e-5
    assert right.straddling == 1
    wrong = replace(samples[0], logprobs=samples[0].logprobs - np.array([0, 0, 0, 0.5, 0], np.float32))
    assert exactness([wrong, samples[1]], small_policy(30), weights).max_error == pytest.approx(0.5, abs=1e-4)
