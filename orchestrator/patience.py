"""Has a feed waited in vain for too long?

Pure. A wait goes on as long as something comes nearer to a batch: more rollouts have ended and are of use than ever
since the wait began, or there is a new policy version. Rollouts that only end to be dropped come nearer to nothing, and
so many of them in a row that it cannot be chance end the wait at once. One object for each batch that is awaited.
Called by `feed`, which does the waiting.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from orchestrator.groups import Groups, Unit

IN_VAIN: Final = 1000
"""Groups that may be dropped in a row."""
AT_A_TIME: Final = 10
"""Or so many times the groups that are open: what is open may all be of no use at once, after an outage."""


class Patience:
    """That of one wait."""

    def __init__(self, groups: Groups, version: int, patience_s: float, now: float) -> None:
        """`now` is a time in seconds, on whatever clock."""
        self._groups, self._version, self._patience_s = groups, version, patience_s
        self._ready, self._ended = len(groups.ready), len(groups.ended)
        self.deadline = now + patience_s
        """When the wait is over, on the same clock."""
        self.dropped: Counter[str] = Counter()
        """Rollouts that ended in vain meanwhile, by reason."""
        self.last_failed = ""
        """What the last of them said that failed."""
        self._row, self._most = 0.0, len(groups.open)

    def look(self, version: int, now: float) -> None:
        """Nothing of what is there now is to be dropped, and it makes no batch."""
        ready, ended = len(self._groups.ready), len(self._groups.ended)
        if version != self._version:
            self._version, self._ready, self._ended = version, ready, ended
        elif ready <= self._ready and ended <= self._ended:
            return
        if ready > self._ready:
            self._row = 0.0
        self._ready, self._ended = max(ready, self._ready), max(ended, self._ended)
        self.deadline = now + self._patience_s

    def in_vain(self, useless: Mapping[str, Sequence[Unit]]) -> None:
        """These are dropped, by reason."""
        self._most = max(self._most, len(self._groups.open))
        for reason, units in useless.items():
            self.dropped[reason] += sum(len(unit.members) for unit in units)
            self._row += sum(len(unit.members) / len(unit.group.members) for unit in units)
            for unit in units:
                for member in unit.members:
                    if member.end is not None and member.end.error:
                        self.last_failed = f"{member.rollout}: {member.end.error}: {member.end.message}"

    def over(self, now: float) -> bool:
        """Whether the wait is over, since what ends is in vain."""
        return bool(self.dropped) and (self.exhausted or now >= self.deadline)

    @property
    def exhausted(self) -> bool:
        """Whether so many groups were dropped in a row that the next will be too."""
        return self._row >= max(IN_VAIN, AT_A_TIME * self._most)
