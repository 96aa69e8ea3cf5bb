"""Which tokens come next, for many sequences at once? Continuous batching, with weights that change on the way.

A sequence joins the batch as soon as there is a slot, and leaves it with its last token. Of its prompt only what no
earlier sequence began with is read (`prefixes.py`). `swap` changes the weights between two tokens: what the batch's
sequences have so far is read again under the new ones, and what was kept of others is forgotten. So each token's
log-probability is the one under the weights of its version, given exactly the tokens before it. One thread calls it
(`serving.py`); it knows no text.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import Final, Literal

import torch
from torch import Tensor

from examples.grpo_cpu.model import Cache, Policy
from examples.grpo_cpu.prefixes import Prefixes
from examples.grpo_cpu.weights import BadWeights, State

KEPT: Final = 16_384
"""Tokens whose keys and values are kept when their sequence has ended; 4 KiB each in the example's policy."""
SMALLEST: Final = 2.0**-25
"""Of what is drawn for the noise: a 0 that rounding made would decide alone."""


@dataclass(slots=True, kw_only=True, eq=False)
class Generation:
    """A prompt on its way, and what came of it."""

    prompt: Sequence[int]
    limit: int
    """Tokens to generate, at most."""
    temperature: float = 1.0
    """0 takes the likeliest token."""
    tokens: list[int] = field(default_factory=list)
    """The generated tokens; the end token too, if it was generated."""
    logprobs: list[float] = field(default_factory=list)
    """Theirs, under the weights that generated them, at temperature 1."""
    versions: list[int] = field(default_factory=list)
    """The weights that generated them."""
    finish: Literal["stop", "length"] | None = None
    """Why it ended; None while it goes on."""

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Version, and count of generated tokens in a row."""
        return [(version, len(list(same))) for version, same in groupby(self.versions)]

    @property
    def known(self) -> list[int]:
        """Prompt and generated tokens."""
        return [*self.prompt, *self.tokens]


class Engine:
    """A policy, and the batch that it works on."""

    def __init__(self, policy: Policy, version: int, *, end: int, slots: int = 64, seed: int = 0) -> None:
        self._policy, self._end = policy.eval(), end
        self._shapes = {name: part.shape for name, part in policy.state_dict().items()}
        self.version = version
        """Of the weights now."""
        self.read = 0
        """Tokens that it put through the policy."""
        self._slots = slots
        self._cache = Cache.empty(policy.shape, slots)
        self._prefixes = Prefixes(KEPT)
        self._batch: list[Generation] = []
        """Each has the slot of its index; all tokens but the latest are in the cache."""
        self._current = True
        """Whether what is in the cache is of the weights now."""
        self._waiting: deque[Generation] = deque()
        self._random = torch.Generator().manual_seed(seed)

    @property
    def running(self) -> int:
        """Sequences in the batch."""
        return len(self._batch)

    @property
    def waiting(self) -> int:
        """Sequences for which there was no slot yet."""
        return len(self._waiting)

    def add(self, generation: Generation) -> None:
        """Takes a prompt. It and one token more have to fit into the context, else `ValueError`."""
        room = self._policy.shape.context - len(generation.prompt)
        if not generation.prompt or room < 1:
            raise ValueError(f"a prompt of {len(generation.prompt)} tokens leaves room for none: {room}")
        generation.limit = max(1, min(generation.limit, room))
        self._waiting.append(generation)

    def leave(self, generation: Generation) -> None:
        """Gives up a sequence that nobody waits for any more."""
        if generation in self._waiting:
            self._waiting.remove(generation)
        elif generation in self._batch:
            self._free(self._batch.index(generation))

    @torch.inference_mode()
    def swap(self, state: State, version: int) -> None:
        """Goes on with other weights; raises `BadWeights`, and changes nothing, where they are another policy's."""
        if {name: part.shape for name, part in state.items()} != self._shapes:
            raise BadWeights("these weights are of a policy of another shape")
        self._policy.load_state_dict(state)
        self.version = version
        self._prefixes.clear()
        self._current = False

    @torch.inference_mode()
    def step(self) -> list[Generation]:
        """One token more for each sequence, and the first one for those that join; returns those that ended."""
        if count := len(self._batch):
            tokens = [generation.known for generation in self._batch]
            known = [len(each) - 1 if self._current else 0 for each in tokens]
            self._sample(self._batch, self._read(tokens, known, 0))
        self._current = True
        joining = [self._waiting.popleft() for _ in range(min(self._slots - count, len(self._waiting)))]
        if joining:
            prompts = [generation.prompt for generation in joining]
            found = [self._begin(prompt, slot) for slot, prompt in enumerate(prompts, start=count)]
            self._batch += joining
            self._sample(joining, self._read(prompts, found, count))
        ended = [generation for generation in self._batch if generation.finish]
        for slot in reversed(range(len(self._batch))):
            if self._batch[slot].finish:
                self._free(slot)
        return ended

    def _begin(self, prompt: Sequence[int], slot: int) -> int:
        """Puts what is known of a prompt into a slot; returns of how many tokens, which is never all of them."""
        common, cache = self._prefixes.longest(prompt[:-1])
        if cache is not None:
            for part, kept in zip(self._cache, cache, strict=True):
                part[:, slot, :common] = kept[:, :common]
        return common

    def _read(self, sequences: Sequence[Sequence[int]], known: Sequence[int], slot: int) -> Tensor:
        """Reads what is not known yet of sequences, in the slots from `slot` on; returns what comes after each."""
        new = [tokens[start:] for tokens, start in zip(sequences, known, strict=True)]
        before = [(0, *tokens)[start:-1] for tokens, start in zip(sequences, known, strict=True)]
        self.read += sum(len(tokens) for tokens in new)
        return self._policy.extend(
            torch.tensor(list(chain.from_iterable(new))),
            torch.tensor(list(chain.from_iterable(before))),
            torch.tensor(known),
            torch.tensor([len(tokens) for tokens in new]),
            Cache(*(part[:, slot : slot + len(sequences)] for part in self._cache)),
        )

    def _sample(self, generations: Sequence[Generation], hidden: Tensor) -> None:
        logprobs = torch.log_softmax(self._policy.logits(hidden), dim=-1)
        temperatures = torch.tensor([generation.temperature for generation in generations])[:, None]
        # the largest of log p / t + Gumbel noise is a sample of softmax(log p / t)
        noise = torch.empty_like(logprobs).exponential_(generator=self._random).clamp_min_(SMALLEST).log_()
        chosen = (logprobs - temperatures * noise).argmax(-1)
        of_chosen = logprobs.gather(-1, chosen[:, None])[:, 0]
        for generation, token, logprob in zip(generations, chosen.tolist(), of_chosen.tolist(), strict=True):
            generation.tokens.append(token)
            generation.logprobs.append(logprob)
            generation.versions.append(self.version)
            if token == self._end:
                generation.finish = "stop"
            elif len(generation.tokens) == generation.limit:
                generation.finish = "length"

    def _free(self, slot: int) -> None:
        """Takes a sequence out, and keeps what is known of it; the last one of the batch moves into its slot."""
        known, last = self._batch[slot].known[:-1], self._batch.pop()
        if self._current:
            self._prefixes.keep(known, Cache(*(part[:, slot, : len(known)].clone() for part in self._cache)))
        if slot != len(self._batch):
            self._batch[slot] = last
            for part in self._cache:
                part[:, slot, : len(last.known)] = part[:, len(self._batch), : len(last.known)]
