"""Writes the events of rollouts whose model calls have tokens, as a log would hold them."""

from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np

from contracts.events import Event, Recorded
from contracts.samples import RolloutSamples, Sample
from contracts.tokens import Capture, CitedTokens, PolicySpan, pack_ids, pack_logprobs

NOTHING = msgspec.Raw(b"null")
START = datetime(2026, 1, 2, tzinfo=UTC)
ROLLOUT = "r-0"


class Conversations:
    """One rollout's model calls. Items are texts here."""

    def __init__(self, rollout: str = ROLLOUT) -> None:
        self.rollout = rollout
        self.events: list[Recorded] = []
        self.said: dict[str, tuple[list[Any], list[Any]]] = {}
        """Input and output items of each call."""

    def call(
        self,
        key: str,
        items: Sequence[Any] | str,
        output: Sequence[Any],
        capture: Capture | None,
        *,
        model: str = "policy",
        status: str = "completed",
        settings: dict[str, Any] | None = None,
    ) -> Recorded:
        """Adds a request and its reply; returns the reply."""
        self.said[key] = list(items), list(output)
        asked = {"input": items if isinstance(items, str) else list(items), **(settings or {})}
        self.request(key, {"request": asked}, model=model)
        raw = NOTHING if capture is None else msgspec.Raw(msgspec.json.encode(capture))
        subject = f"jetgym.0.reply.agent-0-x.{self.rollout}.{key}"
        reply = {"id": f"resp_{key}", "output": list(output), "status": status}
        return self.write("model.replied", subject, key, reply, raw)

    def request(self, key: str, data: dict[str, Any], *, model: str = "policy") -> Recorded:
        """Adds a request that is not answered."""
        subject = f"jetgym.0.models.{model}.0.request.{self.rollout}.{key}"
        return self.write("model.requested", subject, key, data)

    def write(self, what: str, subject: str, key: str, data: Any, capture: msgspec.Raw = NOTHING) -> Recorded:
        """Adds an event."""
        seq = len(self.events) + 1
        event = Event(
            id=f"w-{seq}",
            source="models/policy/w",
            type=what,
            time=START + timedelta(seconds=seq),
            subject=subject,
            rolloutid=self.rollout,
            callkey=key,
            data=msgspec.Raw(msgspec.json.encode(data)),
            capture=capture,
        )
        recorded = Recorded(seq=seq, subject=subject, event=event, raw=msgspec.json.encode(event))
        self.events.append(recorded)
        return recorded


def capture(
    prompt: Sequence[int],
    generated: Sequence[int],
    *,
    cited: tuple[str, int] | None = None,
    version: int | None = 3,
    **fields: Any,
) -> Capture:
    """A capture with log-probabilities that follow from the tokens. With `cited`, `prompt` is what comes after."""
    known: dict[str, Any] = {
        "cited": None if cited is None else CitedTokens(call=cited[0], count=cited[1]),
        "prompt": pack_ids(prompt),
        "generated": pack_ids(generated),
        "logprobs": pack_logprobs(logprob(token) for token in generated),
        "tokenizer": "tok",
        "template": "tem",
    }
    if version is not None and generated:
        known |= {"spans": (PolicySpan(version, len(generated)),), "policy": (version, version)}
    return Capture(**(known | fields))


def logprob(token: int) -> float:
    """What `capture` says of a token."""
    return -(token % 64 + 1) / 64


def equal(one: RolloutSamples, other: RolloutSamples) -> bool:
    """Whether two rollouts have the same samples."""

    def told(found: RolloutSamples) -> list[Any]:
        each = [
            [np.asarray(getattr(sample, field.name)).tolist() for field in fields(Sample)] for sample in found.samples
        ]
        return [each, found.breaks, found.tokenless, found.rollout_id]

    return told(one) == told(other)
