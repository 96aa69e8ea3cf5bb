"""How does a worker process end by itself, and how does it say so?

By an exit code, and before by a log line: what runs in the process may end it with the same code, and then there is no
such line. Used by the worker's process, and by who supervises it.
"""

from typing import Final

REFUSED: Final = 2
"""It cannot serve whatever is tried; the line's `message` says why."""
LOG_AWAY: Final = 75
"""It has lost the log, and it may be better another time (as in sysexits.h); the line's `message` says how."""
GROWN: Final = 76
"""It took more memory than it may; the line's `message` says how much."""

SAID: Final = {REFUSED: "worker.refused", LOG_AWAY: "worker.log_away", GROWN: "worker.grown"}
"""The `event` of the log line before each."""
