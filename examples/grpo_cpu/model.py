"""The policy: a decoder-only transformer of about a million parameters. Pure PyTorch.

It is run in two ways that give the same log-probabilities up to rounding: over whole sequences (`forward`, by the
trainer, and by the engine for prompts) and token by token with what was computed before (`decode`, by the engine).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

COPIED: Final = 0.1
"""Share of what attention looks at that it adds, before it has learned anything."""
_EMBEDDINGS: Final = ("token.weight", "previous.weight", "position.weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How large a policy is."""

    vocabulary: int
    context: int = 384
    """Tokens of a prompt and its reply together, at most."""
    width: int = 128
    layers: int = 4
    heads: int = 4


class Cache(NamedTuple):
    """Keys and values of the tokens so far: [layers, sequences, heads, context, width of a head] each."""

    keys: Tensor
    values: Tensor

    @classmethod
    def empty(cls, shape: Shape, sequences: int) -> "Cache":
        """Room for so many sequences."""
        size = (shape.layers, sequences, shape.heads, shape.context, shape.width // shape.heads)
        return cls(torch.zeros(size), torch.zeros(size))


class _Block(nn.Module):
    """Attention and a perceptron, each added to what comes in."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.before_attention = nn.LayerNorm(shape.width)
        self.ask = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.merge = nn.Linear(shape.width, shape.width, bias=False)
        self.before_mixing = nn.LayerNorm(shape.width)
        self.mix = nn.Sequential(
            nn.Linear(shape.width, 4 * shape.width), nn.GELU(), nn.Linear(4 * shape.width, shape.width)
        )

    @torch.no_grad()
    def start_as_copier(self) -> None:
        """Lets attention add a part of what it looks at, as it is."""
        copied = COPIED**0.5 * torch.eye(self.merge.in_features)
        self.ask.weight[-len(copied) :] = copied
        self.merge.weight.copy_(copied)

    def parts(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values: [sequences, heads, tokens, width of a head] each."""
        sequences, tokens, width = hidden.shape
        asked = self.ask(self.before_attention(hidden))
        queries, keys, values = asked.view(sequences, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        return queries, keys, values

    def finish(self, hidden: Tensor, attended: Tensor) -> Tensor:
        """The block's output from what its attention found."""
        hidden = hidden + self.merge(attended.transpose(1, 2).flatten(2))
        mixed: Tensor = hidden + self.mix(self.before_mixing(hidden))
        return mixed


class Policy(nn.Module):
    """Log-probabilities of the next token.

    Two things let it learn within some hundred updates, not tens of thousands, to copy a name that was mentioned
    ("induction"): a token's embedding has a second part, that of the token before it; and attention starts as a
    copier, which passes on what it looks at.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.token = nn.Embedding(shape.vocabulary, shape.width)
        self.previous = nn.Embedding(shape.vocabulary, shape.width)
        self.position = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.ModuleList(_Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        for name, weights in self.named_parameters():
            if weights.dim() > 1:
                nn.init.normal_(weights, std=0.1 if name in _EMBEDDINGS else 0.02)
        for _, block in self._layers():
            block.start_as_copier()

    def _layers(self) -> Iterator[tuple[int, _Block]]:
        for index, block in enumerate(self.blocks):
            assert isinstance(block, _Block)
            yield index, block

    @property
    def size(self) -> int:
        """Parameters."""
        return sum(weights.numel() for weights in self.parameters())

    def forward(self, tokens: Tensor, cache: Cache | None = None) -> Tensor:
        """What comes after each token, for `logits`: [sequences, tokens, width].

        Args:
            tokens: [sequences, tokens], filled up at the right end with anything.
            cache: is filled with the keys and values, where it is given; it holds exactly these sequences.
        """
        before = functional.pad(tokens[:, :-1], (1, 0))
        positions = torch.arange(tokens.shape[1])
        hidden: Tensor = self.token(tokens) + self.previous(before) + self.position(positions)
        for layer, block in self._layers():
            queries, keys, values = block.parts(hidden)
            if cache is not None:
                cache.keys[layer, :, :, : tokens.shape[1]] = keys
                cache.values[layer, :, :, : tokens.shape[1]] = values
            attended = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
            hidden = block.finish(hidden, attended)
        return hidden

    def decode(self, tokens: Tensor, before: Tensor, lengths: Tensor, cache: Cache) -> Tensor:
        """The same for one token more in each sequence: [sequences, width].

        Args:
            tokens: [sequences].
            before: the tokens before them, [sequences].
            lengths: how many tokens of each sequence are in the cache, [sequences].
            cache: it holds exactly these sequences; their new token is added to it.
        """
        hidden: Tensor = (self.token(tokens) + self.previous(before) + self.position(lengths)).unsqueeze(1)
        rows, longest = torch.arange(len(tokens)), int(lengths.max()) + 1
        seen = (torch.arange(longest) <= lengths[:, None])[:, None, None]
        for layer, block in self._layers():
            queries, keys, values = block.parts(hidden)
            cache.keys[layer, rows, :, lengths] = keys.squeeze(2)
            cache.values[layer, rows, :, lengths] = values.squeeze(2)
            attended = functional.scaled_dot_product_attention(
                queries, cache.keys[layer, :, :, :longest], cache.values[layer, :, :, :longest], attn_mask=seen
            )
            hidden = block.finish(hidden, attended)
        return hidden.squeeze(1)

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores of all tokens: […, vocabulary]."""
        return functional.linear(self.norm(hidden), self.token.weight)

    def logprobs(self, tokens: Tensor) -> Tensor:
        """Log-probability of each token but the first, given those before it: [sequences, tokens - 1]."""
        scores = self.logits(self(tokens)[:, :-1])
        return -functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none").view(
            scores.shape[:2]
        )
