"""What a worker process is told: one JSON document on its standard input.

It comes that way because the config holds secrets, which must not stand in a process list, an environment or a file.
Written by the orchestrator, read by `python -m components.workers`.
"""

from typing import Any

import msgspec

from contracts.events import Kind


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One worker of one pool."""

    kind: Kind
    instance: str
    implementation: str
    config: dict[str, Any]
    """The component's config, as resolved."""
    log: dict[str, Any]
    """The log's config (`bus.LogConfig`)."""
    url: str
    worker_index: int = 0
    slots: tuple[int, ...] = (0,)
    """The slots that this worker serves."""
    slots_of: dict[str, int] = {}
    """Number of slots of every instance that this component may call."""
    drain_s: float = 10.0
    """Seconds that it gets to finish what it holds once it is told to stop."""
    roots: tuple[str, ...] = ()
    """Folders that hold a `components/` of the user's, before JetGym's own."""
