"""The event: one thing that happened, as it stands in the log.

Attribute names are those of CloudEvents 1.0 (https://cloudevents.io), extension attributes in lower case without
separators as that specification asks. `data` stays raw JSON: only the addressee decodes it. An event is published
once, to the one subject that it names itself.
"""

from datetime import datetime
from typing import Final, Literal

import msgspec

Kind = Literal["agents", "models", "resources", "timers"]
"""What a call is addressed to. `timers` are served by the agent worker itself."""

CallType = Literal["rollout", "agent", "model", "session", "tool", "verify", "timer"]
"""What is called: the first word of the event types `<call>.requested`, `<call>.replied`, `<call>.failed`."""

Outcome = Literal["rollout.completed", "rollout.failed", "rollout.cancelled"]
"""The types of a rollout's one terminal event."""

SPECVERSION: Final = "1.0"


NOTHING: Final = msgspec.Raw(b"null")
"""Where there is no data, or no capture. A default is left out of the bytes only if it is this very object."""
FIRST_FORM: Final = "1"
"""The version of data whose form never changed; likewise."""
NO_TIME: Final = 0.0
"""Where nothing was worked on; likewise."""
SAID_ELSEWHERE: Final = 0
"""Where the reply itself says it, or there is nothing to say."""


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event of the log."""

    specversion: str = SPECVERSION
    id: str
    """Unique in the deployment: the writer's worker ID and its own counter."""
    source: str
    """Who wrote it: `<kind>/<instance>/<worker>`, or `orchestrator/<run>`."""
    type: str
    """`<call>.requested`, `<call>.replied`, `<call>.failed`, `rollout.completed`, `rollout.adopted`, …"""
    time: datetime
    """When it was written, UTC."""
    subject: str
    """The NATS subject that it is stored under."""
    dataschema: str = FIRST_FORM
    """Version of `data`'s form, `<major>` or `<major>.<minor>`; a newer major is refused."""
    rolloutid: str = ""
    callkey: str = ""
    afterkey: str | None = None
    """On a request to resources: key of the call that its caller made to the same instance before it, empty for the
    first. None where the writer did not say."""
    replyto: str = ""
    """On a request: the subject of its one reply."""
    causationid: str = ""
    """ID of the event that caused this one."""
    traceparent: str = ""
    """W3C trace context."""
    elapsed: float = NO_TIME
    """On a reply: seconds that the callee worked on it."""
    data: msgspec.Raw = NOTHING
    dataref: str = ""
    """Claim check: `sha256:<hex>` of a blob that holds `data`, which is then absent."""
    capture: msgspec.Raw = NOTHING
    """On `model.replied`: the call's tokens and policy versions (`contracts.tokens`). No agent gets to read it."""
    captureref: str = ""
    """Claim check of `capture`."""
    policy: tuple[int, int] | None = None
    """Of `capture`: the oldest and newest policy version that generated any of its tokens, if known.

    On a request: the one at which a trainer asked for its rollout, as both.
    """
    generated: int = SAID_ELSEWHERE
    """Of `capture`: how many tokens were generated, where the reply's `usage` does not say the same."""

    @property
    def captured(self) -> bool:
        """Whether it has a capture, in itself or elsewhere."""
        return self.captureref != "" or self.capture != NOTHING


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """An event read back from the log, with its place and its exact bytes."""

    seq: int
    """Sequence in the stream of its partition."""
    subject: str
    event: Event
    raw: bytes
    """The bytes as stored: unknown fields survive here."""


ErrorKind = Literal[
    "bad_request",  # the callee cannot serve this request as it is
    "context_length",  # the prompt does not fit the model
    "unavailable",  # the engine or tool could not be reached within its deadline
    "deadline",  # the callee took longer than it may
    "tool_error",  # a tool raised
    "verify_error",  # a verifier, seed_session or snapshot raised
    "agent_error",  # agent code raised
    "nondeterminism",  # agent code departed from its own history
    "poison",  # the request could not be processed at all
    "cancelled",
    "internal",  # a fault of JetGym itself
]


class CallError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a call, or a rollout, failed: the `data` of `<call>.failed` and `rollout.failed`."""

    kind: ErrorKind
    message: str
    """What, where, and the next step, for a human."""
    details: dict[str, str] = {}
    """For machines: the status of an HTTP answer, the exception's name, the call key that failed."""
