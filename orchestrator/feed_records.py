"""What has a trainer's feed committed and dropped, and how is that written down?

The records of a feed are events with numbers of their own, so the first writer of a number has it: a second trainer
that feeds under the same name is refused at its first record, not after both have trained on the same groups. Called
by `trainer` and `feed`, and by `status`, which reads only the first and the last one.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from bus import Bus, BusError, Conflict
from contracts.feeds import FeedRecord
from contracts.ids import check_name
from orchestrator.errors import FeedTaken

_RECORD: Final = msgspec.json.Decoder(FeedRecord)


class FeedRecords:
    """The records of one feed, read and continued."""

    def __init__(self, bus: Bus, run: str, feed: str) -> None:
        self._bus, self._run, self._feed = bus, run, check_name(feed, "feed")
        self._next = 0
        self.consumed: set[str] = set()
        """Everything that was committed or dropped, as the records call it."""
        self.latest = FeedRecord(version=0)
        self._uncertain: BusError | None = None
        self._version = 0
        """The newest policy version at which anything was trained on that is committed."""
        self._committed: list[str] = []
        """What that is, as the records call it."""

    async def read(self) -> None:
        """Learns what is in the log."""
        subject = self._bus.subjects.feed_of(self._run, self._feed)
        async for recorded in self._bus.scan(subject):
            self._learn(_RECORD.decode(await self._bus.fetch_data(recorded.event)))
            self._next = int(recorded.subject.rpartition(".")[2]) + 1

    def committed_at(self, version: int) -> list[str]:
        """What was trained on at a policy version, of which none is newer, and is committed."""
        return self._committed if version == self._version else []

    @property
    def opened(self) -> bool:
        """Whether there is any record."""
        return self._next > 0

    async def write(self, what: str, record: FeedRecord) -> None:
        """Appends `feed.opened`, `feed.committed` or `feed.dropped`; raises `FeedTaken`, `BusError`.

        After a `BusError` nothing can be appended any more: the record may stand in the log, or not.
        """
        if self._uncertain is not None:
            raise self._uncertain
        subject = self._bus.subjects.feed(self._run, self._feed, self._next)
        try:
            await self._bus.publish(self._bus.event(f"feed.{what}", subject, msgspec.json.encode(record)))
        except Conflict:
            raise FeedTaken(
                f"another trainer has gone on with feed {self._feed!r} of run {self._run!r} (its record {self._next} "
                f"is not ours): stop one of the two, or give them feeds of different names"
            ) from None
        except BusError as error:
            self._uncertain = error
            raise
        self._next += 1
        self._learn(record)

    def _learn(self, record: FeedRecord) -> None:
        self.consumed.update(record.committed, record.dropped)
        self.latest = record
        if record.committed:
            if record.version > self._version:
                self._version, self._committed = record.version, []
            if record.version == self._version:
                self._committed += record.committed


class FeedState(msgspec.Struct, frozen=True, kw_only=True):
    """A feed as it was when its latest record was written."""

    run: str
    feed: str
    version: int
    rollouts: int
    """That it is done with: committed or dropped."""
    staleness: dict[int, int]
    """Committed rollouts by their staleness at delivery."""
    refused: dict[str, int]
    """Dropped rollouts by reason."""
    unfinished: int
    """Groups."""
    waiting: int
    """Groups that had ended and were not committed."""


async def feeds(bus: Bus) -> Sequence[FeedState]:
    """All feeds of a deployment; raises `BusError`."""
    found = []
    async for opened in bus.scan(bus.subjects.feed("*", "*", 0)):
        *_, run, feed, _ = opened.subject.split(".")
        latest = await bus.last(bus.subjects.feed_of(run, feed)) or opened
        record = _RECORD.decode(await bus.fetch_data(latest.event))
        found.append(
            FeedState(
                run=run,
                feed=feed,
                version=record.version,
                rollouts=record.rollouts,
                staleness=record.staleness,
                refused=record.refused,
                unfinished=record.unfinished,
                waiting=record.waiting,
            )
        )
    return found
