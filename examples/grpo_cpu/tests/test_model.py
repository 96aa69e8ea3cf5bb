import torch

from examples.grpo_cpu.model import Cache, Policy, Shape
from examples.grpo_cpu.tests.policies import small_policy


def test_the_policy_of_the_example_has_about_a_million_parameters() -> None:
    assert 800_000 < Policy(Shape(vocabulary=512)).size < 1_200_000


@torch.inference_mode()
def test_token_by_token_and_at_once_are_the_same_for_sequences_of_several_lengths() -> None:
    policy = small_policy(50)
    lengths = [3, 9, 6]
    tokens = torch.randint(50, (3, 12))
    cache = Cache.empty(policy.shape, 3)
    policy(tokens[:, : max(lengths)], cache)
    for _ in range(3):
        rows = torch.arange(3)
        at = torch.tensor(lengths)
        stepped = policy.logits(policy.decode(tokens[rows, at], tokens[rows, at - 1], at, cache))
        whole = policy.logits(policy(tokens))[rows, at]
        assert torch.allclose(stepped, whole, atol=1e-5)
        lengths = [length + 1 for length in lengths]


def test_log_probabilities_are_those_of_the_next_token() -> None:
    policy, tokens = small_policy(50), torch.randint(50, (2, 7))
    expected = torch.log_softmax(policy.logits(policy(tokens)), -1)[0, 3, tokens[0, 4]]
    assert torch.allclose(policy.logprobs(tokens)[0, 3], expected)
