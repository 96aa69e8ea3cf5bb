"""What is recorded of a model call beside its reply? The tokens as its engine gave them, checked, and policy versions.

Called by the model worker for each call, with what the component passed on. Tokens that are refused (lengths that
differ, log-probabilities that are none) leave a flaw in their place: nothing is mended here and nothing made up. Of a
prompt only what no earlier call of the rollout has is stored. Where no engine speaks of tokens and no policy was
announced, nothing is recorded, and it costs nothing.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from math import isfinite
from typing import Final

import msgspec
import structlog
from msgspec import Raw

from bus import Bus
from bus.errors import BlobLost
from components.models.tokens import EngineTokens, Prefix
from components.workers.known_tokens import KnownTokens, Said, place_after, said
from components.workers.policies import Policies
from contracts.contexts import ModelCalls
from contracts.errors import MissingContext
from contracts.events import NOTHING, Event
from contracts.responses import ResponseUsage
from contracts.tokens import NEWEST, Capture, CitedTokens, PolicySpan, pack_logprobs, read_capture, unpack_logprobs

ROUNDING: Final = 1e-5
"""Above 0 by no more than this, a log-probability is 0 that was rounded, and is recorded as 0."""
LOWEST: Final = -9_999.0
"""What vLLM and others write for minus infinity, which JSON does not have."""
WIDTH: Final = 4
"""Bytes of a token ID, and of a log-probability."""
ROOM: Final = 1_024
"""Bytes of a capture beside its tokens."""
WORTH_CITING: Final = 64
"""Bytes of tokens; fewer are shorter than a citation."""


class Captures:
    """The captures that one worker makes, of one model instance."""

    def __init__(self, bus: Bus, instance: str, policies: Policies) -> None:
        self._bus, self._instance, self._policies = bus, instance, policies
        self._known = KnownTokens()
        self._limit = bus.config.blob_limit - ROOM

    def begin(self, request: Event, whole: bytes) -> "CallCapture":
        """The capture of a call that begins now; `whole` is its Responses request."""
        return CallCapture(self, self._policies, request, whole)

    async def recall(self, rollout: str, conversation: Said) -> None:
        """Reads from the log what is not remembered of the calls that a conversation has in it."""
        if conversation.written == 0 or self._known.knows(rollout, conversation.places[conversation.written]):
            return
        requests: dict[str, bytes] = {}
        replies: dict[str, bytes] = {}
        raw: dict[str, bytes] = {}
        for event in (entry.event for entry in await self._bus.history(rollout)):
            with suppress(BlobLost):  # nothing cites a call of which the log has lost a part
                if event.type == "model.requested":
                    requests[event.callkey] = await self._bus.fetch_data(event)
                elif event.type == "model.replied":
                    replies[event.callkey] = await self._bus.fetch_data(event)
                    if event.captured and event.source.startswith(f"models/{self._instance}/"):
                        raw[event.callkey] = await self._bus.fetch_capture(event)
        calls, tokens = ModelCalls(requests, replies), dict[str, bytes]()
        for call, captured in raw.items():
            try:
                capture = read_capture(captured)
                if capture.has_tokens:
                    cited = capture.cited
                    before = tokens[cited.call][: WIDTH * cited.count] if cited is not None else b""
                    tokens[call] = before + capture.prompt + capture.generated
                    asked = said(calls.whole_request(requests[call]))
                    self._known.keep(rollout, call, place_after(asked.places[-1], replies[call]), tokens[call])
            except (KeyError, MissingContext, msgspec.DecodeError) as error:
                structlog.get_logger().warning("capture.no_place", rollout=rollout, call=call, error=str(error))

    def longest(self, rollout: str, conversation: Said) -> Prefix | None:
        """The tokens that stand for the longest start of a conversation."""
        found = self._known.longest(rollout, conversation.places)
        if found is None:
            return None
        ids, items = found
        return Prefix(ids, items, is_latest=items >= conversation.written)

    def shared(self, rollout: str, prompt: bytes) -> CitedTokens | None:
        """Where most of a prompt stands already."""
        call, size = self._known.shared(rollout, prompt)
        return CitedTokens(call=call, count=size // WIDTH) if size >= WORTH_CITING else None

    def keep(self, rollout: str, call: str, place: bytes, ids: bytes) -> None:
        """Remembers a call whose reply and capture are in the log."""
        self._known.keep(rollout, call, place, ids)

    def fitting(self, capture: Capture) -> Capture:
        """The capture, or a flaw where the log could not hold it."""
        size, limit = sum(map(len, (capture.prompt, capture.generated, capture.logprobs))) * 4 // 3, self._limit
        if size <= limit:
            return capture
        flaw = f"the tokens have {size:,} bytes, and log.blob_limit is {limit:,}"
        return Capture(policy=capture.policy, flaw=flaw)


class CallCapture:
    """The capture of one call, from its start to its reply."""

    __slots__ = (
        "_captures",
        "_conversation",
        "_policies",
        "_recalled",
        "_request",
        "_start",
        "_tokens",
        "_whole",
        "generated",
        "versions",
    )

    def __init__(self, captures: Captures, policies: Policies, request: Event, whole: bytes) -> None:
        self._captures, self._policies, self._request, self._whole = captures, policies, request, whole
        self._start = request.policy[0] if policies.version is None and request.policy else policies.version
        """What was announced last, as far as it is known; else what was when the rollout was asked for."""
        self._tokens: EngineTokens | None = None
        self._conversation: Said | None = None
        self._recalled = False
        self.versions: tuple[int, int] | None = None
        """The oldest and the newest policy version that generated any of it, once it is `finished`."""
        self.generated = 0
        """How many tokens it has, once it is `finished`, where the engine's `usage` does not say so."""

    def take(self, tokens: EngineTokens) -> None:
        """What the engine said; the last word counts, since a call may have been tried before."""
        self._tokens = tokens

    async def prefix(self) -> Prefix | None:
        """See `ModelCall.prefix`."""
        return self._captures.longest(self._request.rolloutid, await self._placed())

    async def _placed(self) -> Said:
        """The request's places, when what is known of them is in memory."""
        if self._conversation is None:
            self._conversation = said(self._whole)
        if not self._recalled:
            await self._captures.recall(self._request.rolloutid, self._conversation)
            self._recalled = True
        return self._conversation

    async def finished(self, reply: bytes, usage: ResponseUsage | None) -> tuple[Raw, Callable[[], None] | None]:
        """The capture beside this reply, and what is to be called when both are in the log."""
        tokens = self._tokens
        self.versions = policy = self._policy(tokens)
        if tokens is None:
            return NOTHING if policy is None else _json(Capture(policy=policy)), None
        flaw = tokens.flaw or _flaw(tokens)
        if flaw:
            structlog.get_logger().warning("capture.flaw", flaw=flaw)
            flawed = Capture(policy=policy, flaw=flaw, tokenizer=tokens.tokenizer, template=tokens.template)
            return _json(flawed), None
        rollout, call, place = self._request.rolloutid, self._request.callkey, await self._placed()
        ids = tokens.prompt + tokens.generated
        cited = self._captures.shared(rollout, tokens.prompt)
        spans = tokens.spans
        if spans:
            policy = spans[0].version, spans[-1].version
            self.versions = min(span.version for span in spans), max(span.version for span in spans)
        elif policy is not None:
            spans = (PolicySpan(policy[0], len(tokens.generated) // WIDTH),)
        capture = self._captures.fitting(
            Capture(
                cited=cited,
                prompt=tokens.prompt[WIDTH * cited.count :] if cited is not None else tokens.prompt,
                generated=tokens.generated,
                logprobs=_not_above_zero(tokens.logprobs),
                spans=spans,
                policy=policy,
                tokenizer=tokens.tokenizer,
                template=tokens.template,
                usage=_other_count(tokens, usage),
            )
        )
        if usage is None or capture.usage is not None:
            self.generated = len(capture.generated) // WIDTH
        after = place_after(place.places[-1], reply)
        kept = (lambda: self._captures.keep(rollout, call, after, ids)) if capture.has_tokens else None
        return _json(capture), kept

    def _policy(self, tokens: EngineTokens | None) -> tuple[int, int] | None:
        """The version when the call began and when it ended, if any is known."""
        start, end = self._start, self._policies.version
        if tokens is None:
            return None if start is None or end is None else (start, end)
        if tokens.newest is not None:  # an engine that had older weights than were announced had them at the start too
            end = tokens.newest
            return end if start is None else min(start, end), end
        return None if start is None else (start, start if end is None else end)


def _json(capture: Capture) -> Raw:
    return Raw(msgspec.json.encode(capture))


def _flaw(tokens: EngineTokens) -> str:
    """Why tokens cannot be taken; empty if they can."""
    if not tokens.generated:
        return "the engine generated no token"
    if not tokens.prompt:
        return "the engine gave IDs of the generated tokens and none of the prompt"
    if any(len(packed) % WIDTH for packed in (tokens.prompt, tokens.generated, tokens.logprobs)):
        return "the tokens are not packed as they should be"
    if len(tokens.generated) != len(tokens.logprobs):
        generated, logprobs = len(tokens.generated) // WIDTH, len(tokens.logprobs) // WIDTH
        return f"the engine gave {generated} generated tokens and {logprobs} log-probabilities"
    if not (tokens.prompt[3::WIDTH].isascii() and tokens.generated[3::WIDTH].isascii()):  # the bytes with the signs
        return "the engine gave a negative token ID"
    return _improbable(unpack_logprobs(tokens.logprobs)) or _uncovered(tokens)


def _improbable(logprobs: Sequence[float]) -> str:
    if not isfinite(sum(logprobs)):
        return "a log-probability is NaN or infinite"
    if max(logprobs) > ROUNDING:
        return f"a log-probability is {max(logprobs)}, which is over 0"
    if min(logprobs) <= LOWEST:
        return f"a log-probability is {min(logprobs)}: the engine says that this token cannot be sampled"
    return ""


def _not_above_zero(packed: bytes) -> bytes:
    logprobs = unpack_logprobs(packed)
    return packed if max(logprobs) <= 0 else pack_logprobs(min(logprob, 0.0) for logprob in logprobs)


def _uncovered(tokens: EngineTokens) -> str:
    spans, generated = tokens.spans, len(tokens.generated) // WIDTH
    versions = {span.version for span in spans}
    if tokens.newest is not None:
        versions.add(tokens.newest)
    if not all(0 <= version <= NEWEST for version in versions):
        return f"the policy versions {sorted(versions)} are not all from 0 to {NEWEST}"
    counts = [span.count for span in spans]
    if spans and (min(counts) < 1 or sum(counts) != generated):
        return f"the policy spans are of {counts} tokens, and {generated} were generated"
    return ""


def _other_count(tokens: EngineTokens, usage: ResponseUsage | None) -> tuple[int, int] | None:
    """The engine's own count, where it is not how many tokens it gave."""
    if usage is None:
        return None
    counted = usage.input_tokens, usage.output_tokens
    return None if counted == (len(tokens.prompt) // WIDTH, len(tokens.generated) // WIDTH) else counted
