"""One rollout in an agent worker: its request, its execution, its counts, and what it waits for.

State only; `components.workers.agent` moves it. Kept small: a worker holds tens of thousands.
"""

import asyncio
import time
from collections import deque
from datetime import datetime

from bus import Delivery
from components.durable import Execution
from components.durable.history import SUB_CALL
from components.workers.tally import Tally
from contracts.events import Event, Recorded
from contracts.ids import ROOT_CALL
from contracts.rollouts import RolloutRequest, RolloutResult


class Rollout:
    """A rollout, or a nested one (an agent called by an agent), that this worker serves."""

    __slots__ = (
        "adopting",
        "delivery",
        "ended",
        "epoch",
        "execution",
        "pending",
        "prefix",
        "request",
        "sending",
        "seq",
        "started",
        "taken",
        "tally",
        "timers",
    )

    def __init__(self, delivery: Delivery, request: RolloutRequest, taken: datetime) -> None:
        self.delivery = delivery
        self.request = request
        self.taken = taken
        self.tally = Tally(taken)
        self.prefix = "" if delivery.event.callkey == ROOT_CALL else f"{delivery.event.callkey}{SUB_CALL}"
        self.execution: Execution[RolloutResult] | None = None
        self.pending: deque[Recorded] | None = None
        """Replies that wait: for the data of one before them, or for the end of an adoption."""
        self.adopting = False
        self.sending = 0
        """Calls whose publish has not been acknowledged."""
        self.seq = 0
        """Sequence up to which the execution has been given its replies."""
        self.epoch = 0
        self.timers: dict[str, asyncio.TimerHandle] | None = None
        """Timers that have not fired, by call key."""
        self.ended = False
        """The terminal event is being written, or the rollout was lost to another worker."""
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


def prefix_of(callkey: str) -> str:
    """The prefix of the execution that made a call: empty for the rollout's own."""
    above, nested, _ = callkey.rpartition(SUB_CALL)
    return above + nested
