"""What goes into an execution and what comes out of it.

`components/workers/agent` turns a `Call` into a request event and a reply event into a `Reply`. Neither is ever
written anywhere as it stands here.
"""

from datetime import datetime
from typing import Final

import msgspec

from contracts.events import Kind

CLOCK: Final = "clock"
"""The instance that timers are addressed to."""


class Call(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request that agent code made."""

    key: str
    """Path of the branch and a counter in it: `m_0`, `m1-2_3`; see `components/durable/loop.py`."""
    kind: Kind
    instance: str
    type: str
    """`model.requested`, `tool.requested`, …; `timer.requested` for a timer."""
    data: bytes
    """The request's JSON."""
    delay: float = 0.0
    """Timers only: seconds from now until the reply `timer.replied` is due."""
    cause: str = ""
    """`Reply.id` of the reply after which the code made this call; that of the start for the first calls."""
    after: str | None = None
    """Of a call to resources: key of the published one to the same instance before it, empty for the first."""


class Reply(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The one answer to a call."""

    key: str
    type: str
    """`<call>.replied`, or `<call>.failed`, whose data is a `CallError`."""
    data: bytes
    time: datetime
    """When the reply was written, UTC."""
    id: str = ""
    """ID of the reply's event."""
    seq: int = 0
    """Sequence of the reply's event in the log."""
