import torch

from examples.grpo_cpu.model import Cache, Policy, Shape
from examples.grpo_cpu.tests.policies import small_policy


def test_the_policy_of_the_example_has_about_a_million_parameters() -> None:
    assert 800_000 < Policy(Shape(vocabulary=512)).size < 1_200_000


@torch.inference_mode()
def test_piece_by_piece_and_at_once_are_the_same_for_sequences_of_several_lengths() -> None:
    policy, tokens = small_policy(50), torch.randint(50, (3, 12))
    whole, cache, rows = policy.logits(policy(tokens)), Cache.empty(policy.shape, 3), torch.arange(3)
    before, lengths = torch.nn.functional.pad(tokens, (1, 0)), torch.zeros(3, dtype=torch.long)
    for counts in ([4, 1, 2], [1, 1, 1], [2, 5, 1], [1, 1, 1], [4, 1, 3]):
        new = [range(length, length + count) for length, count in zip(lengths.tolist(), counts, strict=True)]
        pieces, previous = (
            torch.cat([each[row, list(places)] for row, places in enumerate(new)]) for each in (tokens, before)
        )
        extended = policy.extend(pieces, previous, lengths, torch.tensor(counts), cache)
        lengths += torch.tensor(counts)
        assert torch.allclose(policy.logits(extended), whole[rows, lengths - 1], atol=1e-5)


def test_log_probabilities_are_those_of_the_next_token() -> None:
    policy, tokens = small_policy(50), torch.randint(50, (2, 7))
    expected = torch.log_softmax(policy.logits(policy(tokens)), -1)[0, 3, tokens[0, 4]]
    assert torch.allclose(policy.logprobs(tokens)[0, 3], expected)
