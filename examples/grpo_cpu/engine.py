"""Which tokens come next, for many sequences at once? Continuous batching, with weights that change on the way.

A sequence joins the batch as soon as there is a slot, and leaves it with its last token. `swap` changes the weights
between two tokens: what the batch's sequences have so far is read again under the new ones. So each token's
log-probability is the one under the weights of its version, given exactly the tokens before it. One thread calls it
(`serving.py`); it knows no text.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, Literal

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from examples.grpo_cpu.model import Cache, Policy
from examples.grpo_cpu.weights import BadWeights, State

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
        self._slots = slots
        self._cache = Cache.empty(policy.shape, slots)
        self._batch: list[Generation] = []
        """Each has the slot of its index; all tokens but the latest are in the cache."""
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
        if self._batch:
            self._read([generation.known[:-1] for generation in self._batch], 0)

    @torch.inference_mode()
    def step(self) -> list[Generation]:
        """One token more for each sequence, and the first one for those that join; returns those that ended."""
        if count := len(self._batch):
            known = [generation.known for generation in self._batch]
            latest, before = (torch.tensor([tokens[place] for tokens in known]) for place in (-1, -2))
            lengths = torch.tensor([len(tokens) - 1 for tokens in known])
            self._sample(self._batch, self._policy.decode(latest, before, lengths, self._part(0, count)))
        joining = [self._waiting.popleft() for _ in range(min(self._slots - count, len(self._waiting)))]
        if joining:
            hidden = self._read([generation.prompt for generation in joining], count)
            self._batch += joining
            self._sample(joining, hidden)
        ended = [generation for generation in self._batch if generation.finish]
        for slot in reversed(range(len(self._batch))):
            if self._batch[slot].finish:
                self._free(slot)
        return ended

    def _part(self, start: int, stop: int) -> Cache:
        return Cache(self._cache.keys[:, start:stop], self._cache.values[:, start:stop])

    def _read(self, sequences: Sequence[Sequence[int]], slot: int) -> Tensor:
        """Reads sequences into the slots from `slot` on; returns what comes after the last token of each."""
        tokens = pad_sequence([torch.tensor(sequence) for sequence in sequences], batch_first=True)
        hidden: Tensor = self._policy(tokens, self._part(slot, slot + len(sequences)))
        return hidden[torch.arange(len(sequences)), torch.tensor([len(sequence) - 1 for sequence in sequences])]

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
        """Takes a sequence out; the last one of the batch moves into its slot."""
        last = len(self._batch) - 1
        if slot != last:
            self._batch[slot] = self._batch[last]
            self._cache.keys[:, slot] = self._cache.keys[:, last]
            self._cache.values[:, slot] = self._cache.values[:, last]
        self._batch.pop()
