"""What does a trainer get of a rollout? Pure.

The model calls of a rollout make up a tree: a call goes on from the call whose prompt and generated tokens its own
prompt begins with, the longest such. Each way from a root to a leaf is a branch, and a sample. Every sampled token is
trained on in exactly one sample: where branches share calls, the first of them has these under its mask. Stored tokens
are never changed; where a conversation's tokens do not go on, another branch begins and a `Break` says why.
Called by `orchestrator.samples`, which fetches what is needed, and through it by exports, trainers and adapters.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from contracts.breaks import Break, BreakKind, Conversation, branch_of
from contracts.call_tokens import NOT_CAPTURED, CallTokens, Ids, Logprobs, ModelEvents
from contracts.errors import OtherTokenizer
from contracts.events import Recorded
from contracts.tokens import UNSAMPLED

__all__ = ["Break", "BreakKind", "RolloutSamples", "Sample", "Tokenless", "build_samples"]

Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Sample:
    """One branch of a rollout. The four arrays have one element a token."""

    rollout_id: str
    branch: int
    """Index among the samples of the rollout."""
    model: str
    """Name of the model instance that sampled its tokens."""
    calls: tuple[str, ...]
    """Keys of its model calls, in order."""
    tokens: Ids
    mask: Mask
    """True: sampled, and to be trained on here."""
    logprobs: Logprobs
    """Under the weights that sampled the token; 0 where the mask is False."""
    versions: Ids
    """Policy version that sampled the token; -1 where the mask is False, and where none is known."""
    turns: tuple[tuple[int, int], ...]
    """For each call, from where to before where the tokens that it generated stand."""
    tokenizer: str
    """Digest of the tokenizer, and of the chat template; empty where none was recorded."""
    template: str
    truncated: bool
    """The last call was cut off, by a limit of tokens or a filter."""

    @property
    def start(self) -> int:
        """How many tokens come before the first one that is trained on: the prompt, for trainers that know one."""
        return int(self.mask.argmax())

    @property
    def trained(self) -> int:
        """How many tokens are trained on."""
        return int(np.count_nonzero(self.mask))


class Tokenless(msgspec.Struct, frozen=True, kw_only=True):
    """An answered model call that cannot be trained on."""

    call: str
    why: str


@dataclass(frozen=True, eq=False, kw_only=True)
class RolloutSamples:
    """All samples of one rollout, and what is not in them."""

    rollout_id: str
    samples: tuple[Sample, ...]
    breaks: tuple[Break, ...]
    tokenless: tuple[Tokenless, ...]

    @property
    def trainable(self) -> bool:
        """Whether there is a token to train on."""
        return bool(self.samples)

    @cached_property
    def trained(self) -> int:
        """How many tokens are trained on, in all samples: as many as were generated."""
        return sum(sample.trained for sample in self.samples)

    @property
    def breaks_by_kind(self) -> dict[BreakKind, int]:
        """How many breaks there are of each kind."""
        return dict(Counter(found.kind for found in self.breaks))

    @property
    def refused(self) -> Sequence[Tokenless]:
        """Of the calls without tokens those that gave some, which cannot be trusted."""
        return [call for call in self.tokenless if call.why != NOT_CAPTURED]

    @cached_property
    def oldest_version(self) -> int | None:
        """The oldest policy version that sampled a token; None where no version is known."""
        oldest = [int(sample.versions[sample.mask].min()) for sample in self.samples]
        return None if UNSAMPLED in oldest else min(oldest, default=None)

    def check(self, *, tokenizer: str = "", template: str = "") -> None:
        """Raises `OtherTokenizer` if tokens are not recorded under these digests; an empty one is not looked at."""
        for sample in self.samples:
            if tokenizer and sample.tokenizer != tokenizer:
                raise OtherTokenizer(self.rollout_id, "tokenizer", sample.tokenizer, tokenizer)
            if template and sample.template != template:
                raise OtherTokenizer(self.rollout_id, "chat template", sample.template, template)


def build_samples(
    events: Iterable[Recorded], blobs: Mapping[str, bytes] | None = None, *, models: Collection[str] | None = None
) -> RolloutSamples:
    """The samples of a rollout, from its events in any order.

    Args:
        events: those of one rollout; others than model calls are passed over.
        blobs: data and captures of events that are claim checks, by reference.
        models: names of the model instances whose tokens are wanted; all, if not given.

    Raises:
        TwoPayloads: two events say different things of one call.
        BlobMissing: a blob that is needed is not in `blobs`.
    """
    said = ModelEvents(events, blobs)
    calls = [call for call in said.calls().values() if models is None or call.model in models]
    tree = _Tree(said)
    for call in calls:
        if not call.flaw:
            tree.add(call)
    return RolloutSamples(
        rollout_id=said.rollout,
        samples=tuple(tree.samples()),
        breaks=tuple(tree.breaks),
        tokenless=tuple(Tokenless(call=call.key, why=call.flaw) for call in calls if call.flaw),
    )


class _Status(msgspec.Struct):
    status: str | None = None


_STATUS: Final = msgspec.json.Decoder(_Status)


class _Tree:
    """The calls that have tokens, each with the call that it goes on from."""

    def __init__(self, events: ModelEvents) -> None:
        self.breaks: list[Break] = []
        self._events = events
        self._calls: dict[str, CallTokens] = {}
        self._parents: dict[str, CallTokens | None] = {}
        self._lineages: dict[tuple[str, str, str], list[CallTokens]] = {}
        """By whom sampled and how written."""
        self._last: dict[tuple[str, str], CallTokens] = {}
        """The last call of each model and branch of agent code."""
        self._models: dict[str, list[CallTokens]] = {}
        self._conversation: Conversation | None = None

    def add(self, call: CallTokens) -> None:
        """Finds the call's place; calls come in the order of their requests."""
        parent = self._parent(call)
        place, before = (call.model, branch_of(call.key)), self._models.setdefault(call.model, [])
        last = self._last.get(place)
        if before and (parent is None or parent is not last):
            if self._conversation is None:
                self._conversation = Conversation(self._events)
            found = self._conversation.broken(call, before, self._sampled(last))
            if found is not None:
                self.breaks.append(found)
        self._calls[call.key], self._parents[call.key], self._last[place] = call, parent, call
        before.append(call)
        self._lineages.setdefault(call.lineage, []).append(call)

    def samples(self) -> Iterable[Sample]:
        """The branches in the order of the tree, children in the order of their requests."""
        inner = {parent.key for parent in self._parents.values() if parent is not None}
        claimed: set[str] = set()
        leaves = [self._way(call) for call in self._calls.values() if call.key not in inner]
        leaves.sort(key=lambda way: [(call.seq, call.key) for call in way])
        for branch, way in enumerate(leaves):
            yield self._sample(branch, way, claimed)
            claimed.update(call.key for call in way)

    def _parent(self, call: CallTokens) -> CallTokens | None:
        cited = self._calls.get(call.cited)
        if cited is not None and cited.lineage == call.lineage:
            return cited
        longest = sorted(self._lineages.get(call.lineage, ()), key=lambda each: -each.length)
        return next((each for each in longest if call.goes_on_from(each)), None)

    def _way(self, leaf: CallTokens) -> list[CallTokens]:
        """The calls from the root to this one."""
        way: list[CallTokens] = []
        call: CallTokens | None = leaf
        while call is not None:
            way.append(call)
            call = self._parents[call.key]
        return way[::-1]

    def _sampled(self, call: CallTokens | None) -> Sequence[range]:
        return () if call is None else [range(each.prompt_length, each.length) for each in self._way(call)]

    def _sample(self, branch: int, way: Sequence[CallTokens], claimed: Collection[str]) -> Sample:
        leaf = way[-1]
        length = leaf.length
        tokens = np.concatenate(leaf.whole)
        mask, logprobs = np.zeros(length, np.bool_), np.zeros(length, np.float32)
        versions = np.full(length, UNSAMPLED, np.int32)
        turns: list[tuple[int, int]] = []
        for call in way:
            start = call.prompt_length
            end = start + len(call.generated)
            turns.append((start, end))
            if call.key in claimed:
                continue
            mask[start:end] = True
            logprobs[start:end] = call.logprobs
            for span in call.spans:
                versions[start : start + span.count] = span.version
                start += span.count
        return Sample(
            rollout_id=self._events.rollout,
            branch=branch,
            model=leaf.model,
            calls=tuple(call.key for call in way),
            tokens=tokens,
            mask=mask,
            logprobs=logprobs,
            versions=versions,
            turns=tuple(turns),
            tokenizer=leaf.tokenizer,
            template=leaf.template,
            truncated=self._truncated(leaf.key),
        )

    def _truncated(self, key: str) -> bool:
        try:
            return _STATUS.decode(self._events.data(self._events.replies[key].event)).status == "incomplete"
        except msgspec.DecodeError:
            return False
