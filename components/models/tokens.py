"""What a model and its worker tell each other of a call's tokens: `EngineTokens` and `Prefix`. Pure.

A model passes on what its engine said, as it was said; the worker checks it and puts it into the log. Tokens are
packed as `contracts.tokens` says. Nothing of this is part of a request or of a response: no agent gets to see it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from contracts.tokens import PolicySpan, pack_ids, pack_logprobs, unpack_ids

__all__ = ["EngineTokens", "Prefix", "packed_tokens"]

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTokens:
    """What an engine said of the tokens of one call. Nothing in it is derived: what it did not say stays empty."""

    prompt: bytes = b""
    """IDs of the whole prompt."""
    generated: bytes = b""
    """IDs of the tokens that it sampled, the end token too."""
    logprobs: bytes = b""
    """Their log-probabilities."""
    spans: tuple[PolicySpan, ...] = ()
    """Which weights sampled them, where the engine knows."""
    newest: int | None = None
    """The policy version of the weights at the end of the call, where the engine says only that."""
    tokenizer: str = ""
    """Digest of the tokenizer."""
    template: str = ""
    """Digest of the chat template."""
    flaw: str = ""
    """Why this is no use, in words: something is missing, or contradicts itself."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """The tokens of an earlier call of the rollout, with which the prompt of this one has to begin."""

    ids: bytes
    """IDs of its prompt and of what it generated."""
    items: int
    """So many items of this request's input are those that the tokens stand for; the last ones were its reply."""
    is_latest: bool
    """Whether no model has written an item after these."""

    def unpacked(self) -> list[int]:
        """The IDs as numbers."""
        return list(unpack_ids(self.ids))


def packed_tokens(
    prompt: Sequence[int],
    generated: Sequence[int],
    logprobs: Sequence[float],
    *,
    spans: tuple[PolicySpan, ...] = (),
    newest: int | None = None,
    tokenizer: str = "",
    template: str = "",
) -> EngineTokens:
    """The tokens of a call from JSON's numbers; with a flaw where one is none."""
    try:
        return EngineTokens(
            prompt=pack_ids(_numbers(prompt)),
            generated=pack_ids(_numbers(generated)),
            logprobs=pack_logprobs(_numbers(logprobs)),
            spans=spans,
            newest=newest,
            tokenizer=tokenizer,
            template=template,
        )
    except (TypeError, OverflowError) as error:
        return EngineTokens(tokenizer=tokenizer, template=template, flaw=f"not all tokens are numbers: {error}")


def _numbers(values: Sequence[_Number]) -> Sequence[_Number]:
    """The values; raises `TypeError` where one is true or false, which an array takes for 1 and 0."""
    if bool in set(map(type, values)):
        raise TypeError("true and false are none")
    return values
