"""What a model call's tokens are in the log: the `capture` of a `model.replied` event. Pure.

A capture lies beside the reply's data, not in it: agents and environments read `data`, and so never see a token ID.
IDs travel as int32, log-probabilities as float32 (little-endian, as all machines are that this runs on), in base64. A
prompt that begins with the tokens of an earlier call of its rollout cites them, so that a conversation's tokens are
stored once.
Model workers write captures; samples, results and exports are built from them.
"""

from array import array
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

UNSAMPLED: Final = -1
"""The policy version of a token that no policy generated."""
NEWEST: Final = 2**31 - 1
"""The largest policy version: trainers hold them as int32, like token IDs."""


class CitedTokens(msgspec.Struct, frozen=True, kw_only=True):
    """The first `count` of the prompt and generated tokens of an earlier model call of the same rollout."""

    call: str
    """Its key."""
    count: int


class PolicySpan(msgspec.Struct, frozen=True, array_like=True):
    """So many generated tokens in a row, by the weights of this version."""

    version: int
    count: int


class Capture(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of one model call beside its reply. Without tokens where the engine gives none."""

    cited: CitedTokens | None = None
    """What the prompt begins with."""
    prompt: bytes = b""
    """IDs of the prompt's tokens after the cited ones."""
    generated: bytes = b""
    """IDs of the generated tokens, as the engine sampled them; an end token too, if one was sampled."""
    logprobs: bytes = b""
    """Log-probabilities of the generated tokens, under the weights that sampled them."""
    spans: tuple[PolicySpan, ...] = ()
    """Which weights generated which tokens; the counts add up to all of them. Empty: no version is known."""
    policy: tuple[int, int] | None = None
    """The policy version when the call began and when it ended; None: no version is known."""
    tokenizer: str = ""
    """Digest of the tokenizer, where the engine or the config tells."""
    template: str = ""
    """Digest of the chat template."""
    usage: tuple[int, int] | None = None
    """Prompt and generated tokens as the engine counts them, where that is not how many there are here."""
    flaw: str = ""
    """Why there are no tokens though they were asked for, in words; none is ever made up."""

    @property
    def has_tokens(self) -> bool:
        """Whether the call can be trained on."""
        return bool(self.generated)


def pack_ids(ids: Iterable[int]) -> bytes:
    """Token IDs as little-endian int32; raises `OverflowError`, `TypeError` for what is no such integer."""
    return array("i", ids).tobytes()


def pack_logprobs(logprobs: Iterable[float]) -> bytes:
    """Log-probabilities as little-endian float32."""
    return array("f", logprobs).tobytes()


def unpack_ids(packed: bytes) -> Sequence[int]:
    """The token IDs; raises `ValueError` if the bytes are no whole number of them."""
    ids: array[int] = array("i")
    ids.frombytes(packed)
    return ids


def unpack_logprobs(packed: bytes) -> Sequence[float]:
    """The log-probabilities; raises `ValueError` if the bytes are no whole number of them."""
    logprobs: array[float] = array("f")
    logprobs.frombytes(packed)
    return logprobs


_DECODER: Final = msgspec.json.Decoder(Capture)
_TOKENS, _FLAW = b'"generated":', b'"flaw":'
"""The names of fields: no text in a capture has them in it, since its quotes would be escaped."""


def glance(raw: bytes) -> tuple[bool, bool]:
    """Whether a capture has tokens, and whether it has a flaw; without decoding it, which costs as its tokens do."""
    return _TOKENS in raw, _FLAW in raw


def read_capture(raw: bytes | msgspec.Raw) -> Capture:
    """The capture in an event; raises `msgspec.DecodeError`."""
    return _DECODER.decode(raw)
