"""Reading dead letters back, and writing down what was decided about them.

Called by `jetgym dead`. A letter is never deleted: a decision is an event beside it, of which the first one stands.
"""

from collections.abc import AsyncIterator
from typing import Final

import msgspec

from bus.bus import Bus
from bus.deadletter import SETTLED, DeadLetterData, Settlement
from bus.direct import first_from
from bus.errors import BlobLost, Conflict
from bus.headings import Heading, heading_of
from bus.history import recorded_of
from contracts.events import Recorded

_LETTER: Final = msgspec.json.Decoder(DeadLetterData)
_SETTLEMENT: Final = msgspec.json.Decoder(Settlement)


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter as it stands in the log."""

    id: str
    """`<partition>-<sequence of the letter>`."""
    recorded: Recorded
    data: DeadLetterData
    settled: Recorded | None
    """The decision about it."""

    @property
    def pool(self) -> Heading:
        """Who could not process it (`kind`, `instance`), and the rollout that it belonged to."""
        return heading_of(self.recorded.subject)


async def letters(bus: Bus) -> AsyncIterator[Letter]:
    """All dead letters, in the order of each partition, one partition after the other; raises `BusError`."""
    for partition in range(bus.config.partitions):
        decided = {
            recorded.subject.removesuffix(".settled"): recorded
            async for recorded in bus.scan(bus.subjects.settlements(partition), partition=partition)
        }
        async for recorded in bus.scan(bus.subjects.dead_letters(partition), partition=partition):
            yield await _letter(bus, partition, recorded, decided.get(recorded.subject))


async def letter(bus: Bus, identifier: str) -> Letter | None:
    """The dead letter with this ID, or None; raises `BusError`."""
    partition, _, seq = identifier.partition("-")
    if not (partition.isdigit() and seq.isdigit()) or int(partition) >= bus.config.partitions:
        return None
    subject = bus.subjects.dead_letters(int(partition))
    connection = bus._connection  # noqa: SLF001 - a part of the same package
    stored = await first_from(connection, bus.subjects.stream(int(partition)), subject, int(seq))
    recorded = None if stored is None else recorded_of(stored)
    if recorded is None or recorded.seq != int(seq):
        return None
    return await _letter(bus, int(partition), recorded, await bus.last(bus.subjects.settled(recorded.subject)))


def decision(settled: Recorded) -> Settlement:
    """What was decided."""
    return _SETTLEMENT.decode(settled.event.data)


async def settle(bus: Bus, dead: Letter, settlement: Settlement) -> Recorded | None:
    """Writes the decision down; returns the one that stands already, if another was first. Raises `BusError`."""
    event = bus.event(
        SETTLED,
        bus.subjects.settled(dead.recorded.subject),
        msgspec.json.encode(settlement),
        rolloutid=dead.recorded.event.rolloutid,
        causationid=dead.recorded.event.id,
    )
    try:
        await bus.publish(event)
    except Conflict as conflict:
        return conflict.stored
    return None


async def _letter(bus: Bus, partition: int, recorded: Recorded, settled: Recorded | None) -> Letter:
    try:
        data = _LETTER.decode(await bus.fetch_data(recorded.event))
    except BlobLost as error:  # a power cut took it: what its subject says is left
        data = DeadLetterData(
            reason="undecodable",
            message=f"what it holds is gone: {error}",
            subject="",
            seq=int(recorded.subject.rpartition(".")[2]),
            num_delivered=0,
            raw_base64="",
        )
    return Letter(id=f"{partition}-{recorded.seq}", recorded=recorded, data=data, settled=settled)
