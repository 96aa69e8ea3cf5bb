import random
from itertools import takewhile

import torch

from examples.grpo_cpu.model import Cache
from examples.grpo_cpu.prefixes import Prefixes


def cache(tokens: list[int]) -> Cache:
    """One that tells whose it is."""
    return Cache(torch.tensor(tokens), torch.tensor(tokens))


def common(one: list[int], other: list[int]) -> int:
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))


def test_what_is_found_begins_with_as_many_of_the_tokens_as_any_that_is_kept() -> None:
    random_, kept = random.Random(0), Prefixes(100_000)
    sequences = [[random_.randrange(3) for _ in range(random_.randint(1, 12))] for _ in range(300)]
    for index, tokens in enumerate(sequences):
        count, found = kept.longest(tokens)
        assert count == max((common(tokens, other) for other in sequences[:index]), default=0)
        assert (found is None) == (count == 0)
        if found is not None:
            assert found.keys[:count].tolist() == tokens[:count]
        kept.keep(tokens, cache(tokens))


def test_so_many_tokens_are_kept_and_what_was_used_last_is_among_them() -> None:
    kept = Prefixes(10)
    for tokens in ([1, 1, 1, 1], [2, 2, 2, 2]):
        kept.keep(tokens, cache(tokens))
    assert kept.longest([1, 1, 5])[0] == 2
    kept.keep([3, 3, 3, 3], cache([3, 3, 3, 3]))
    assert [kept.longest([first] * 4)[0] for first in (1, 2, 3)] == [4, 0, 4]


def test_a_conversation_that_goes_on_takes_the_place_of_its_own_beginning() -> None:
    kept = Prefixes(10)
    for tokens in ([1, 1, 1, 1], [1, 1, 1, 1, 2, 2], [3, 3, 3, 3]):
        kept.keep(tokens, cache(tokens))
    assert kept.longest([1, 1, 1, 1, 2, 2])[0] == 6
    assert kept.longest([3, 3, 3, 3])[0] == 4


def test_nothing_is_found_of_what_was_cleared() -> None:
    kept = Prefixes(10)
    kept.keep([1, 2], cache([1, 2]))
    kept.clear()
    assert kept.longest([1, 2]) == (0, None)
