"""The finished rollouts of a run, as a durable consumer that remembers what was committed.

For trainers' clients, which acknowledge what they have used. It is a pool whose events are terminal events.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from bus.connection import Connection
from bus.deadletter import DeadLetter, Reason
from bus.pool import Pool
from bus.pull import ConsumerConfig
from bus.subjects import Subjects, consumer_name
from contracts.events import Event

MAX_UNCOMMITTED: Final = 1_000_000
UNLIMITED: Final = 1_000_000_000


async def open_feed(
    connection: Connection,
    subjects: Subjects,
    run: str,
    name: str,
    *,
    batch: int,
    ack_wait_s: float,
    bury: Callable[[DeadLetter], Awaitable[None]],
) -> Pool:
    """See `Bus.feed`."""
    consumers = [
        ConsumerConfig(
            stream=subjects.stream(partition),
            name=consumer_name("feed", run.replace("*", "all"), name),
            filter=subjects.ended_of(partition, run),
            ack_wait_s=ack_wait_s,
            max_ack_pending=MAX_UNCOMMITTED,
        )
        for partition in range(subjects.partitions)
    ]
    pool = Pool(connection, consumers, batch=batch, max_deliver=UNLIMITED, check=_check, bury=bury)
    return await pool.start()


def _check(event: Event, subject: str) -> Reason | None:
    if event.subject != subject or not subject.endswith(f".{event.rolloutid}"):
        return "subject_mismatch"
    return None
