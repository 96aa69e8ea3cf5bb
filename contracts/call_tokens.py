"""Which tokens did each model call of a rollout read and sample? Pure.

Reads the captures of a rollout's events (`contracts.tokens`), looks up what they cite of each other, and checks them:
a capture that is not whole, or not finite, has no tokens to train on and says why. No token is made up or changed.
Called by `contracts.samples`, and by whoever puts tokens on the items of a response.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from contracts.errors import BlobMissing, TwoPayloads
from contracts.events import Event, Recorded
from contracts.tokens import NEWEST, UNSAMPLED, Capture, PolicySpan, read_capture

Ids: TypeAlias = npt.NDArray[np.int32]
Logprobs: TypeAlias = npt.NDArray[np.float32]

NOT_CAPTURED: Final = "its tokens were not captured"
_INSTANCE: Final = 3
_NO_IDS: Final[Ids] = np.empty(0, np.int32)
_NO_LOGPROBS: Final[Logprobs] = np.empty(0, np.float32)

Scalar = TypeVar("Scalar", np.int32, np.float32)


class CallTokens(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One answered model call."""

    key: str
    model: str
    """Name of the instance that answered."""
    seq: int
    """Sequence of its request: calls are ordered by it."""
    prompt: Sequence[Ids] = ()
    """IDs of the prompt's tokens, in parts: calls that cite each other share them."""
    prompt_length: int = 0
    """Tokens of the prompt."""
    generated: Ids = _NO_IDS
    logprobs: Logprobs = _NO_LOGPROBS
    spans: tuple[PolicySpan, ...] = ()
    """Which weights generated which tokens; the counts add up to all of them."""
    cited: str = ""
    """Key of the call that the prompt begins with all tokens of, where the capture says so."""
    tokenizer: str = ""
    template: str = ""
    flaw: str = ""
    """Why it cannot be trained on, in words; empty where it can."""

    @property
    def length(self) -> int:
        """Tokens of the prompt and generated ones."""
        return self.prompt_length + len(self.generated)

    @property
    def whole(self) -> Sequence[Ids]:
        """The tokens of the prompt and the generated ones, in parts."""
        return (*self.prompt, self.generated)

    @property
    def lineage(self) -> tuple[str, str, str]:
        """Whose tokens they are, and how they were written: only within one can tokens go on from each other."""
        return self.model, self.tokenizer, self.template

    def prompt_ids(self) -> Ids:
        """The whole prompt in one piece."""
        return joined(self.prompt)

    def goes_on_from(self, other: "CallTokens") -> bool:
        """Whether the prompt begins with all tokens of the other call, of the same lineage."""
        if other.lineage != self.lineage or other.length > self.prompt_length:
            return False
        prompt, start = self.prompt_ids(), 0
        for part in other.whole:
            if not np.array_equal(prompt[start : start + len(part)], part):
                return False
            start += len(part)
        return True


def joined(parts: Sequence[Ids]) -> Ids:
    """The parts in one piece; a copy, but for a single part."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else _NO_IDS


def event_data(event: Event, blobs: Mapping[str, bytes]) -> bytes:
    """The event's data, also where it is a claim check; raises `BlobMissing`."""
    return _resolved(event, event.dataref, event.data, blobs)


class ModelEvents:
    """The model calls among the events of one rollout, each once, in whatever order the events are given."""

    def __init__(self, events: Iterable[Recorded], blobs: Mapping[str, bytes] | None = None) -> None:
        """`blobs` holds data and captures that are claim checks, by reference.

        Raises `TwoPayloads` if two events say different things of one call.
        """
        self.blobs = blobs or {}
        self.requests: dict[str, Recorded] = {}
        self.replies: dict[str, Recorded] = {}
        self.rollout = ""
        for recorded in events:
            self.rollout = self.rollout or recorded.event.rolloutid
            match recorded.event.type:
                case "model.requested":
                    _add(self.requests, recorded)
                case "model.replied" | "model.failed":
                    _add(self.replies, recorded)
        failed = [key for key, recorded in self.replies.items() if recorded.event.type == "model.failed"]
        for key in failed:
            del self.replies[key]

    def data(self, event: Event) -> bytes:
        """The event's data; raises `BlobMissing`."""
        return event_data(event, self.blobs)

    def calls(self) -> dict[str, CallTokens]:
        """The answered calls by key, in the order of their requests; raises `BlobMissing`."""
        reader = _Reader(self)
        asked = sorted(self.replies, key=lambda key: (self._seq(key), key))
        return {key: reader.read(key) for key in asked}

    def _seq(self, key: str) -> int:
        return (self.requests.get(key) or self.replies[key]).seq

    def capture(self, key: str) -> Capture | None:
        """The capture of an answered call; None where there is none. Raises `BlobMissing`, `msgspec.DecodeError`."""
        event = self.replies[key].event
        if not event.captured:
            return None
        return read_capture(_resolved(event, event.captureref, event.capture, self.blobs))

    def blank(self, key: str, flaw: str) -> CallTokens:
        """A call of which no tokens are known."""
        request = self.requests.get(key)
        model = request.subject.split(".")[_INSTANCE] if request is not None else ""
        return CallTokens(key=key, model=model, seq=self._seq(key), flaw=flaw)


class _Reader:
    """Resolves what captures cite; each call once."""

    def __init__(self, events: ModelEvents) -> None:
        self._events = events
        self._known: dict[str, CallTokens] = {}

    def read(self, key: str) -> CallTokens:
        chain: dict[str, Capture] = {}
        asked: str | None = key
        while asked is not None and asked not in self._known:
            if asked in chain:
                self._known[asked] = self._events.blank(asked, "its capture cites itself")
                break
            capture = self._capture(asked)
            if capture is None:
                break
            chain[asked] = capture
            asked = capture.cited.call if capture.cited is not None else None
        for each, capture in reversed(chain.items()):
            if each not in self._known:
                self._known[each] = self._resolve(each, capture)
        return self._known[key]

    def _capture(self, key: str) -> Capture | None:
        """The capture; None, and the call is known, where there is none."""
        if key not in self._events.replies:
            return None
        try:
            capture = self._events.capture(key)
        except msgspec.DecodeError as error:
            self._known[key] = self._events.blank(key, f"its capture cannot be read: {error}")
            return None
        if capture is None:
            self._known[key] = self._events.blank(key, NOT_CAPTURED)
        return capture

    def _resolve(self, key: str, capture: Capture) -> CallTokens:
        blank = self._events.blank(key, capture.flaw or NOT_CAPTURED)  # it may have policy versions alone
        if not (capture.prompt or capture.cited or capture.generated):
            return blank
        try:
            prompt, length, cited = self._prompt(capture)
            generated = _ids(capture.generated, "generated tokens")
            logprobs = _unpacked(capture.logprobs, np.float32, "log-probabilities")
        except ValueError as error:
            return msgspec.structs.replace(blank, flaw=str(error))
        spans = capture.spans
        if not spans:
            spans = (PolicySpan(capture.policy[0] if capture.policy is not None else UNSAMPLED, len(generated)),)
        return msgspec.structs.replace(
            blank,
            prompt=prompt,
            prompt_length=length,
            generated=generated,
            logprobs=logprobs,
            spans=spans,
            cited=cited,
            tokenizer=capture.tokenizer,
            template=capture.template,
            flaw=capture.flaw or _flaw(prompt, generated, logprobs, spans),
        )

    def _prompt(self, capture: Capture) -> tuple[Sequence[Ids], int, str]:
        """The prompt in parts, its length, and the call that it begins with all of; raises `ValueError`."""
        own = _ids(capture.prompt, "prompt tokens")
        new = (own,) if len(own) else ()
        if capture.cited is None:
            return new, len(own), ""
        call, count = capture.cited.call, capture.cited.count
        known = self._known.get(call)
        if known is None or not known.prompt:
            raise ValueError(f"its prompt cites call {call!r}, whose tokens are not known")
        if not 0 <= count <= known.length:
            raise ValueError(f"its prompt cites {count} tokens of call {call!r}, which has {known.length}")
        if count == known.length:
            return (*known.whole, *new), count + len(own), call
        return (np.concatenate((*_cut(known.whole, count), own)),), count + len(own), ""


def _flaw(prompt: Sequence[Ids], generated: Ids, logprobs: Logprobs, spans: Sequence[PolicySpan]) -> str:  # noqa: PLR0911
    """What is wrong with tokens that are there, in words."""
    if not prompt:
        return "it has no prompt tokens"
    if not len(generated):
        return "no token was generated"
    if len(logprobs) != len(generated):
        return f"it has {len(generated)} generated tokens and {len(logprobs)} log-probabilities"
    if not (np.maximum.reduce(logprobs) <= 0 and np.minimum.reduce(logprobs) > -np.inf):  # NaN is neither
        return "a log-probability is not finite, or above 0"
    if not all(0 <= span.version <= NEWEST or span.version == UNSAMPLED for span in spans):
        return f"a policy version is below 0 or above {NEWEST}"
    counts = [span.count for span in spans]
    if min(counts) < 0 or sum(counts) != len(generated):
        return f"its policy spans count other than its {len(generated)} generated tokens"
    return ""


def _ids(packed: bytes, what: str) -> Ids:
    """The token IDs in packed bytes; raises `ValueError` for what cannot be any, so that no other call cites it."""
    ids = _unpacked(packed, np.int32, what)
    if len(ids) and np.minimum.reduce(ids) < 0:
        raise ValueError("a token ID is below 0")
    return ids


def _unpacked(packed: bytes, kind: type[Scalar], what: str) -> npt.NDArray[Scalar]:
    """The numbers in packed bytes, not to be written to; raises `ValueError`."""
    try:
        return np.frombuffer(packed, kind)
    except ValueError:
        raise ValueError(f"{len(packed)} bytes are no whole number of {what}") from None


def _cut(parts: Sequence[Ids], count: int) -> Sequence[Ids]:
    """The first `count` tokens of the parts."""
    found: list[Ids] = []
    for part in parts:
        if count > 0:
            found.append(part[:count])
        count -= len(part)
    return found


def _add(known: dict[str, Recorded], recorded: Recorded) -> None:
    """Notes what is said of a call; that it is said twice in the same words changes nothing."""
    event = recorded.event
    there = known.setdefault(event.callkey, recorded)
    if there is recorded:
        return
    if _said(there.event) != _said(event):
        raise TwoPayloads(event.rolloutid, event.callkey, event.type)
    if recorded.seq < there.seq:
        known[event.callkey] = recorded


def _said(event: Event) -> tuple[object, ...]:
    return event.type, bytes(event.data), event.dataref, bytes(event.capture), event.captureref


def _resolved(event: Event, reference: str, raw: msgspec.Raw, blobs: Mapping[str, bytes]) -> bytes:
    if not reference:
        return bytes(raw)
    try:
        return blobs[reference]
    except KeyError:
        raise BlobMissing(f"event {event.id} refers to {reference}, which was not fetched") from None
