"""An answer that takes a while is worth waiting for, but not with every change of what it is about.

Used for charts and tables of a run that is live or still being read: what was worked out lately is given again until
ten times as long has passed as it took.
"""

import time
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_TIMES: Final = 10


class Worked(Generic[T]):
    """Something that was worked out, of which version, and how long that took."""

    def __init__(self, value: T, version: int, began: float) -> None:
        """`began` is `time.monotonic()` before the work."""
        now = time.monotonic()
        self.value, self.version = value, version
        self._until = now + _TIMES * (now - began)

    def serves(self, version: int, *, changing: bool) -> bool:
        """Whether it can be given where this version is asked for, of something that goes on `changing` or does not."""
        return self.version == version or (changing and time.monotonic() < self._until)
