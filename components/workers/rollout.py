"""One rollout in an agent worker: its request, its execution, its counts, and what it waits for.

State only; `components.workers.agent` moves it. Kept small: a worker holds tens of thousands.
"""

import asyncio
import time
from collections import deque
from datetime import UTC, datetime
from sys import intern

from msgspec.structs import force_setattr

from bus import Delivery
from components.durable import Execution
from components.durable.history import SUB_CALL
from components.workers.tally import Tally
from contracts.events import Event, Recorded
from contracts.ids import ROOT_CALL, first_attempt
from contracts.rollouts import RolloutRequest, RolloutResult, RolloutStats

NOT_BEGUN = -1
"""The epoch of a rollout that this worker has neither begun nor adopted."""


class Rollout:
    """A rollout, or a nested one (an agent called by an agent), that this worker holds."""

    __slots__ = (
        "delivery",
        "ended",
        "epoch",
        "execution",
        "prefix",
        "queue",
        "request",
        "sending",
        "seq",
        "stale",
        "started",
        "tally",
        "timers",
        "working",
    )

    request: RolloutRequest
    """Set once it is decoded, before anything else happens."""

    def __init__(self, delivery: Delivery) -> None:
        share(delivery.event, "specversion", "source", "type", "callkey")
        self.delivery = delivery
        self.prefix = prefix_under(delivery.event.callkey)
        self.tally = Tally(datetime.now(UTC))
        self.execution: Execution[RolloutResult] | None = None
        self.queue: deque[Recorded] | None = None
        """Replies that wait, for an adoption or for the data of one before them; None: they go straight on."""
        self.working = False
        """Somebody works the queue off."""
        self.stale = False
        """It is to be adopted before it goes on: another worker may have begun it, or has written one of its calls."""
        self.sending = 0
        """Calls whose publish is not settled."""
        self.seq = 0
        """Sequence up to which the execution has been given its replies."""
        self.epoch = NOT_BEGUN
        """0 for the worker that begins it; each adoption has the next."""
        self.timers: dict[str, asyncio.TimerHandle] | None = None
        """Timers that have not fired, by call key."""
        self.ended = False
        """The terminal event is being written, or the rollout is not this worker's any more."""
        self.started = time.monotonic()

    @property
    def event(self) -> Event:
        """The request event."""
        return self.delivery.event

    @property
    def id(self) -> str:
        """The rollout ID."""
        return self.delivery.event.rolloutid

    @property
    def key(self) -> tuple[str, str]:
        """Under which the worker finds it for a reply."""
        return self.delivery.event.rolloutid, self.prefix

    @property
    def nested(self) -> bool:
        """Whether an agent asked for it; then the rollout as a whole has begun."""
        return bool(self.prefix)

    @property
    def names(self) -> tuple[str, str]:
        """The IDs under which it may be cancelled: its own, and that of its first attempt."""
        return self.id, first_attempt(self.id, self.request.attempt)

    @property
    def decoded(self) -> bool:
        """Whether `request` is set."""
        return hasattr(self, "request")

    @property
    def asked_at(self) -> tuple[int, int] | None:
        """The policy version at which a trainer asked for it, or for the rollout that it is nested in; as both."""
        version = self.request.policy_version
        return self.event.policy if version is None else (version, version)

    @property
    def stats(self) -> RolloutStats:
        """What it used so far."""
        return self.tally.stats(self.event.time, datetime.now(UTC))

    def taken_at(self, first: datetime, used_s: float) -> None:
        """A worker before this one took it at `first`; of its deadline, so many seconds are used."""
        self.started = time.monotonic() - used_s
        self.tally = Tally(first)

    def close(self) -> None:
        """Ends its execution and its timers, so that another execution can take their place."""
        for timer in (self.timers or {}).values():
            timer.cancel()
        self.timers = None
        if self.execution is not None:
            self.execution.close()
            self.execution = None


def share(struct: Event | RolloutRequest, *fields: str) -> None:
    """Has texts that are the same for thousands of rollouts in memory once."""
    for field in fields:
        force_setattr(struct, field, intern(getattr(struct, field)))


def prefix_of(callkey: str) -> str:
    """The prefix of the execution that made a call: empty for the rollout's own."""
    above, nested, _ = callkey.rpartition(SUB_CALL)
    return above + nested


def prefix_under(callkey: str) -> str:
    """The prefix of the execution that was asked for under a call key: empty for the rollout's own."""
    return "" if callkey == ROOT_CALL else callkey + SUB_CALL
