"""What holds of the samples of any rollout, whatever its tree of calls."""

import random
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from contracts.samples import build_samples
from contracts.tokens import Capture, PolicySpan
from tests.unit.contracts.conversations import Conversations, capture, equal, logprob


class RandomRollout:
    """Agents that go on from wherever they like, with few tokens, so that much is the same by chance."""

    def __init__(self, seed: int, vocabulary: int) -> None:
        self.random = random.Random(seed)
        self.rollout = Conversations()
        self.tokens: dict[str, tuple[list[int], list[int]]] = {}
        self.vocabulary = vocabulary
        self.models: dict[str, str] = {}
        self.numbers: dict[str, int] = {}

    def ids(self, least: int, most: int) -> list[int]:
        return [self.random.randrange(self.vocabulary) for _ in range(self.random.randint(least, most))]

    def step(self) -> None:
        path = self.random.choice(["m", "m", "m", "m1", "m1-1", "m_7--m"])
        number = self.numbers[path] = self.numbers.get(path, -1) + 1
        key = f"{path}_{number}"
        base = self.random.choice([None, *self.tokens, *list(self.tokens)[-2:]])
        items, prompt = ["system", "user"], self.ids(1, 4)
        if base is not None:
            said, output = self.rollout.said[base]
            items, prompt = [*said, *output], [*self.tokens[base][0], *self.tokens[base][1]]
            match self.random.randrange(8):
                case 0:
                    items.pop(self.random.randrange(len(items)))
                    prompt = prompt[: self.random.randint(1, len(prompt))]
                case 1:
                    items[self.random.randrange(len(items))] = "edited"
                    prompt[self.random.randrange(len(prompt))] = self.vocabulary
                case 2:
                    prompt[self.random.randrange(len(prompt))] = self.vocabulary + 1
            items.append(f"tool {key}")
            prompt += self.ids(0, 3)
        generated = self.ids(1, 3)
        self.tokens[key] = prompt, generated
        self.models[key] = self.random.choice(["policy", "policy", "policy", "judge"])
        cut = self.random.random()
        spans = (PolicySpan(2, len(generated) - 1), PolicySpan(3, 1)) if cut < 0.3 else (PolicySpan(2, len(generated)),)
        self.rollout.call(
            key,
            items,
            [f"reply {key}"],
            self.capture(prompt, generated, base, spans),
            model=self.models[key],
            settings={"tools": ["a"]} if self.random.random() < 0.1 else {},
        )

    def capture(self, prompt: list[int], generated: list[int], base: str | None, spans: Any) -> Capture:
        """Written out, or citing as much as there is of the call that the conversation goes on from."""
        count = 0
        if base is not None and self.random.random() < 0.7:
            there = [*self.tokens[base][0], *self.tokens[base][1]]
            count = next((n for n, (a, b) in enumerate(zip(there, prompt, strict=False)) if a != b), len(there))
            count = min(count, len(prompt))
        cited = (base, count) if base is not None and count else None
        return capture(prompt[count:] if cited else prompt, generated, cited=cited, spans=spans)


@given(st.integers(0, 2**32), st.integers(1, 14), st.sampled_from([1, 2, 50]))
def test_in_any_tree_of_calls_every_sampled_token_is_trained_on_once_as_it_was_sampled(
    seed: int, steps: int, vocabulary: int
) -> None:
    """T1, T4, T5, T6, T7, T12, T13."""
    rollout = RandomRollout(seed, vocabulary)
    for _ in range(steps):
        rollout.step()
    found = build_samples(rollout.rollout.events)
    trained: dict[str, int] = {}
    for number, sample in enumerate(found.samples):
        assert sample.branch == number
        assert len(sample.tokens) == len(sample.mask) == len(sample.logprobs) == len(sample.versions)
        assert not sample.logprobs[~sample.mask].any()
        assert (sample.versions[~sample.mask] == -1).all()
        assert (sample.versions[sample.mask] >= 2).all()
        assert sample.mask.any()
        covered = np.zeros(len(sample.tokens), np.bool_)
        for call, (start, end) in zip(sample.calls, sample.turns, strict=True):
            prompt, generated = rollout.tokens[call]
            assert rollout.models[call] == sample.model
            assert sample.tokens[:start].tolist() == prompt
            assert sample.tokens[start:end].tolist() == generated
            covered[start:end] = True
            here = sample.mask[start:end]
            assert here.all() or not here.any()
            if here.all():
                trained[call] = trained.get(call, 0) + 1
                assert sample.logprobs[start:end].tolist() == [logprob(token) for token in generated]
        assert not (sample.mask & ~covered).any()
        assert end == len(sample.tokens)
    assert trained == dict.fromkeys(rollout.tokens, 1)
    assert found.trained == sum(len(generated) for _, generated in rollout.tokens.values())
    assert found.tokenless == ()
    shuffled = list(rollout.rollout.events)
    rollout.random.shuffle(shuffled)
    assert equal(build_samples(shuffled), found)


@given(st.integers(0, 2**32), st.integers(1, 14))
def test_a_conversation_that_only_grows_has_no_breaks_however_its_branches_run(seed: int, steps: int) -> None:
    rollout = RandomRollout(seed, 1000)
    rollout.random.randrange = lambda *bounds: 7 if bounds == (8,) else random.Random.randrange(rollout.random, *bounds)  # type: ignore[method-assign]
    for _ in range(steps):
        rollout.step()
    for model in ("policy", "judge"):
        found = build_samples(rollout.rollout.events, models=[model])
        assert {each.kind for each in found.breaks} <= {"tools_changed"}
