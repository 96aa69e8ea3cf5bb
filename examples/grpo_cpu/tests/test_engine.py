import random
from itertools import pairwise

import pytest
import torch

from examples.grpo_cpu.engine import Engine, Generation
from examples.grpo_cpu.model import Policy
from examples.grpo_cpu.tests.policies import small_policy

VOCABULARY, END = 40, 39


def engine(slots: int = 4, context: int = 64) -> Engine:
    return Engine(small_policy(VOCABULARY, context=context), 0, end=END, slots=slots)


def run(engine: Engine, *generations: Generation) -> None:
    for generation in generations:
        engine.add(generation)
    while engine.running or engine.waiting:
        engine.step()


@torch.inference_mode()
def recomputed(policy: Policy, generation: Generation) -> list[float]:
    start = len(generation.prompt)
    found: list[float] = policy.logprobs(torch.tensor([generation.known]))[0, start - 1 :].tolist()
    return found


def prompt(random_: random.Random, before: list[Generation]) -> list[int]:
    """The beginning of another sequence, and something new: half of them go on with a whole one."""
    beginning = random_.choice(before).known[:40] if before else []
    if random_.random() < 0.5:
        beginning = beginning[: random_.randint(0, len(beginning))]
    return [*beginning, *(random_.randrange(VOCABULARY) for _ in range(random_.randint(1, 10)))]


def test_t15_each_token_has_the_log_probability_that_its_own_version_gives_it() -> None:
    """T15: sequences join, go on and leave, weights change while they run; spans partition what was generated."""
    random_ = random.Random(1)
    policies = {version: small_policy(VOCABULARY, seed=version) for version in range(5)}
    at_work = engine()
    generations: list[Generation] = []
    steps = 0
    while len(generations) < 30 or at_work.running or at_work.waiting:
        steps += 1
        if len(generations) < 30 and random_.random() < 0.5:
            generations.append(Generation(prompt=prompt(random_, generations), limit=30))
            at_work.add(generations[-1])
        if steps % 25 == 0 and at_work.version < 4:
            at_work.swap(policies[at_work.version + 1].state_dict(), at_work.version + 1)
        at_work.step()
    for generation in generations:
        assert sum(count for _, count in generation.spans) == len(generation.tokens)
        assert all(before < after for (before, _), (after, _) in pairwise(generation.spans))
        by_version = {version: recomputed(policies[version], generation) for version, _ in generation.spans}
        for index, version in enumerate(generation.versions):
            assert by_version[version][index] == pytest.approx(generation.logprobs[index], abs=1e-4)
    assert any(len(generation.spans) > 1 for generation in generations)


def test_a_sequence_ends_with_the_end_token_its_limit_or_the_context() -> None:
    at_work = engine(slots=32, context=16)
    generations = [Generation(prompt=[1, 2, 3], limit=limit) for limit in (1, 5, 100) for _ in range(20)]
    run(at_work, *generations)
    for generation in generations:
        assert (generation.finish == "stop") == (generation.tokens[-1] == END)
        if generation.finish == "length":
            assert len(generation.tokens) == min(generation.limit, 13)
        assert END not in generation.tokens[:-1]
    assert {generation.finish for generation in generations} == {"stop", "length"}


def test_temperature_0_takes_the_likeliest_token_and_reports_what_it_is_at_temperature_1() -> None:
    at_work = engine()
    generation = Generation(prompt=[5, 6], limit=5, temperature=0)
    run(at_work, generation)
    policy = small_policy(VOCABULARY)
    with torch.inference_mode():
        scores = policy.logits(policy(torch.tensor([generation.known])))[0, 1:-1]
    assert scores.argmax(-1).tolist() == generation.tokens
    assert recomputed(policy, generation) == pytest.approx(generation.logprobs, abs=1e-4)


def test_tokens_are_sampled_as_often_as_they_are_likely() -> None:
    at_work = engine(slots=500)
    generations = [Generation(prompt=[5, 6], limit=1) for _ in range(2_000)]
    run(at_work, *generations)
    policy = small_policy(VOCABULARY)
    with torch.inference_mode():
        likely = torch.softmax(policy.logits(policy(torch.tensor([[5, 6]])))[0, -1], -1)
    counts = torch.bincount(torch.tensor([generation.tokens[0] for generation in generations]), minlength=VOCABULARY)
    assert torch.allclose(counts / 2_000, likely, atol=0.05)


def test_a_prompt_without_room_for_a_token_is_refused() -> None:
    for prompt in ([], [1] * 64):
        with pytest.raises(ValueError, match="leaves room for none"):
            engine().add(Generation(prompt=prompt, limit=1))


def test_a_sequence_that_is_given_up_makes_room_and_disturbs_no_other() -> None:
    at_work = engine(slots=2)
    generations = [Generation(prompt=[index + 1], limit=20, temperature=0) for index in range(3)]
    for generation in generations:
        at_work.add(generation)
    at_work.step()
    at_work.leave(generations[0])
    run(at_work)
    assert generations[0].finish is None
    for generation in generations[1:]:
        alone = Generation(prompt=generation.prompt, limit=20, temperature=0)
        run(engine(), alone)
        assert alone.tokens == generation.tokens


def test_of_a_prompt_that_goes_on_with_a_sequence_only_what_is_new_is_read() -> None:
    at_work = engine()
    first = Generation(prompt=[1, 2, 3, 4, 5, 6], limit=4)
    run(at_work, first)
    before = at_work.read
    run(at_work, Generation(prompt=[*first.known, 7, 8], limit=1))
    assert at_work.read - before == 3  # the latest token was generated, and read by nobody yet
    at_work.swap(small_policy(VOCABULARY, seed=1).state_dict(), 1)
    before = at_work.read
    run(at_work, Generation(prompt=first.known, limit=1))
    assert at_work.read - before == len(first.known)


def test_a_sequence_that_is_given_up_between_two_versions_leaves_nothing_of_the_old_one_behind() -> None:
    at_work, policy = engine(), small_policy(VOCABULARY, seed=1)
    given_up = Generation(prompt=[1, 2, 3], limit=20)
    at_work.add(given_up)
    at_work.step()
    at_work.swap(policy.state_dict(), 1)
    at_work.leave(given_up)
    after = Generation(prompt=[1, 2, 3, 4], limit=5)
    run(at_work, after)
    assert recomputed(policy, after) == pytest.approx(after.logprobs, abs=1e-4)
