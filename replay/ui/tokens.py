"""The tokens of a rollout for a page: which were sampled, how likely each was, and by which weights.

Pure. What is shown is what a trainer gets (`contracts.samples`); of a long sample a part at a time. The log holds no
texts of tokens; where an engine has put them beside a reply's text (`logprobs` of its parts), they are shown.
"""

from itertools import chain
from typing import Any, Final

import msgspec
import numpy as np

from contracts.samples import Break, Sample, Tokenless, build_samples
from replay.trajectory import Trajectory

PART: Final = 8_000
"""Tokens that are given at a time."""

_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens that one model call generated."""

    call: str
    start: int
    end: int
    trained: bool
    """False where an earlier sample trains on them."""
    mean_logprob: float | None
    least_logprob: float | None


class SampleView(msgspec.Struct, frozen=True, kw_only=True):
    """One sample; the lists hold the tokens from `offset` on."""

    branch: int
    model: str
    length: int
    trained: int
    truncated: bool
    tokenizer: str
    template: str
    turns: list[Turn]
    versions: list[tuple[int, int]]
    """Each version, and how many tokens it sampled; -1 where none is known."""
    offset: int
    tokens: list[int]
    mask: list[bool]
    logprobs: list[float | None]
    """None where the mask is false."""
    token_versions: list[int | None]
    texts: list[str | None]


class TokensView(msgspec.Struct, frozen=True, kw_only=True):
    """All samples, and what is not in them."""

    samples: list[SampleView]
    breaks: list[Break]
    tokenless: list[Tokenless]


def tokens_of(trajectory: Trajectory, branch: int, offset: int) -> TokensView:
    """The samples; of the one of that branch the tokens from `offset` on, of the others none.

    The trajectory has its captures among its blobs. Raises `contracts.errors` where captures contradict each other or
    are not there.
    """
    samples = build_samples(trajectory.events, trajectory.blobs)
    return TokensView(
        samples=[_view(trajectory, sample, offset, sample.branch == branch) for sample in samples.samples],
        breaks=list(samples.breaks),
        tokenless=list(samples.tokenless),
    )


def _view(trajectory: Trajectory, sample: Sample, offset: int, wanted: bool) -> SampleView:
    part = slice(offset, offset + PART if wanted else offset)
    mask = sample.mask[part].tolist()
    versions, counts = np.unique(sample.versions[sample.mask], return_counts=True)
    return SampleView(
        branch=sample.branch,
        model=sample.model,
        length=len(sample.tokens),
        trained=sample.trained,
        truncated=sample.truncated,
        tokenizer=sample.tokenizer,
        template=sample.template,
        turns=[_turn(sample, call, start, end) for call, (start, end) in zip(sample.calls, sample.turns, strict=True)],
        versions=list(zip(versions.tolist(), counts.tolist(), strict=True)),
        offset=offset,
        tokens=sample.tokens[part].tolist(),
        mask=mask,
        logprobs=[
            round(value, 4) if on else None for value, on in zip(sample.logprobs[part].tolist(), mask, strict=True)
        ],
        token_versions=[value if value >= 0 else None for value in sample.versions[part].tolist()],
        texts=_texts(trajectory, sample)[part] if wanted else [],
    )


def _turn(sample: Sample, call: str, start: int, end: int) -> Turn:
    trained = bool(sample.mask[start:end].any())
    logprobs = sample.logprobs[start:end] if trained else sample.logprobs[:0]
    return Turn(
        call=call,
        start=start,
        end=end,
        trained=trained,
        mean_logprob=float(logprobs.mean()) if len(logprobs) else None,
        least_logprob=float(logprobs.min()) if len(logprobs) else None,
    )


def _texts(trajectory: Trajectory, sample: Sample) -> list[str | None]:
    texts: list[str | None] = [None] * len(sample.tokens)
    for key, (start, end) in zip(sample.calls, sample.turns, strict=True):
        call = trajectory.calls.get(key)
        if call is None or call.replied is None:
            continue
        said = _said(trajectory.data(call.replied.event))
        if 0 <= end - start - len(said) <= 1:  # an end token has no text
            texts[start : start + len(said)] = said
    return texts


def _said(data: bytes) -> list[str]:
    """The texts of a reply's tokens, where all of its parts have them."""
    try:
        items = _OBJECT.decode(data).get("output") or []
    except msgspec.DecodeError:
        return []
    parts = chain.from_iterable(item.get("content") or () for item in items if isinstance(item, dict))
    found: list[str] = []
    for part in parts:
        entries = part.get("logprobs") if isinstance(part, dict) else None
        told = (entry.get("token") for entry in entries or () if isinstance(entry, dict))
        found.extend(text for text in told if isinstance(text, str))
    return found
