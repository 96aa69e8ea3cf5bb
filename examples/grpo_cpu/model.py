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
    """Keys and values of the tokens so far: [layers, sequences, context, heads, width of a head] each."""

    keys: Tensor
    values: Tensor

    @classmethod
    def empty(cls, shape: Shape, sequences: int) -> "Cache":
        """Room for so many sequences."""
        size = (shape.layers, sequences, shape.context, shape.heads, shape.width // shape.heads)
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
        """Queries, keys and values: […, heads, width of a head] each."""
        asked = self.ask(self.before_attention(hidden))
        queries, keys, values = asked.unflatten(-1, (3, self.heads, -1)).unbind(-3)
        return queries, keys, values

    def finish(self, hidden: Tensor, attended: Tensor) -> Tensor:
        """The block's output from what its attention found: […, heads, width of a head]."""
        hidden = hidden + self.merge(attended.flatten(-2))
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

    def forward(self, tokens: Tensor) -> Tensor:
        """What comes after each token, for `logits`: [sequences, tokens, width].

        Args:
            tokens: [sequences, tokens], filled up at the right end with anything.
        """
        before = functional.pad(tokens[:, :-1], (1, 0))
        positions = torch.arange(tokens.shape[1])
        hidden: Tensor = self.token(tokens) + self.previous(before) + self.position(positions)
        for _, block in self._layers():
            queries, keys, values = (part.transpose(1, 2) for part in block.parts(hidden))
            attended = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
            hidden = block.finish(hidden, attended.transpose(1, 2))
        return hidden

    def extend(self, tokens: Tensor, before: Tensor, lengths: Tensor, counts: Tensor, cache: Cache) -> Tensor:
        """The same after the last token of each sequence, without what is in the cache already: [sequences, width].

        Args:
            tokens: what is new in each sequence, one sequence behind the other without a gap: [tokens].
            before: the token before each, 0 before a sequence's first: [tokens].
            lengths: how many tokens of each sequence are in the cache: [sequences].
            counts: how many are new: [sequences].
            cache: it holds exactly these sequences; the new tokens are added to it.
        """
        longest, most = int((lengths + counts).max()), int(counts.max())
        ends = counts.cumsum(0)
        rows = torch.arange(len(counts)).repeat_interleave(counts)
        columns = torch.arange(len(tokens)) - (ends - counts)[rows]
        places = lengths[rows] + columns
        unseen = torch.arange(longest) > (lengths[:, None] + torch.arange(most))[..., None]
        hidden: Tensor = self.token(tokens) + self.previous(before) + self.position(places)
        hiding = torch.zeros(unseen.shape).masked_fill_(unseen, -torch.inf)[:, None]
        asked = hidden.new_zeros(len(counts), most, self.shape.heads, self.shape.width // self.shape.heads)
        for layer, block in self._layers():
            queries, cache.keys[layer, rows, places], cache.values[layer, rows, places] = block.parts(hidden)
            asked[rows, columns] = queries
            keys, values = (part[layer, :, :longest].transpose(1, 2) for part in cache)
            found = functional.scaled_dot_product_attention(asked.transpose(1, 2), keys, values, attn_mask=hiding)
            hidden = block.finish(hidden, found[rows, :, columns])
        return hidden[ends - 1]

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores of all tokens: […, vocabulary]."""
        return functional.linear(self.norm(hidden), self.token.weight)

    def logprobs(self, tokens: Tensor) -> Tensor:
        """Log-probability of each token but the first, given those before it: [sequences, tokens - 1]."""
        scores = self.logits(self(tokens)[:, :-1])
        return -functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none").view(
            scores.shape[:2]
        )
