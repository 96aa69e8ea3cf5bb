"""Which tokens does a scripted model read and write? Made up of the task's text and the turn alone, with no tokenizer.

For load tests and tests of what is done with tokens. A prompt begins with the prompt and the generated tokens of the
turn before, as an engine that takes token IDs keeps it. Pure.
"""

from functools import cache
from hashlib import blake2b
from random import Random
from typing import Final

from components.models.tokens import EngineTokens
from contracts.tokens import pack_ids, pack_logprobs

BETWEEN: Final = 8
"""Tokens between two turns: the end of one, and the result of a tool."""
_VOCABULARY: Final = 1 << 15
_STRIP: Final = 1 << 17
_WIDTH: Final = 4


def scripted_tokens(text: str, turn: int, prompt: int, generated: int) -> EngineTokens:
    """The tokens of a turn, numbered from 0, of a task with this text.

    Args:
        text: the task's.
        turn: how many there were before.
        prompt: tokens of the first prompt; each later one has what was said since too.
        generated: tokens that each turn writes.
    """
    ids, logprobs = _strips()
    start = int.from_bytes(blake2b(text.encode(), digest_size=4).digest(), "big") % _STRIP
    read = prompt + turn * (generated + BETWEEN)
    return EngineTokens(
        prompt=_cut(ids, start, read),
        generated=_cut(ids, start + read, generated),
        logprobs=_cut(logprobs, start + read, generated),
        tokenizer="scripted",
        template="scripted",
    )


@cache
def _strips() -> tuple[bytes, bytes]:
    """Many IDs in a row, and their log-probabilities."""
    chance = Random(0)  # noqa: S311 - chance, not secrecy
    ids = [chance.randrange(_VOCABULARY) for _ in range(_STRIP)]
    return pack_ids(ids), pack_logprobs(-(token % 997) / 256 for token in ids)


def _cut(strip: bytes, start: int, count: int) -> bytes:
    """So many of a strip that has no end, from one on."""
    first, size = start % _STRIP * _WIDTH, count * _WIDTH
    cut = strip[first : first + size]
    while len(cut) < size:
        cut += strip[: size - len(cut)]
    return cut
