"""What do the subjects of a log say, without the events under them?

A subject names the rollout, the call and the pool, so that a whole log can be counted without moving its payloads.
Called by audits and by what tends the log. It only reads.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, Literal, NamedTuple

from bus.bus import Bus
from bus.scan import read
from bus.subjects import NO_ROLLOUT
from bus.topology import stream_info

Form = Literal["request", "reply", "ended", "adopted", "revised", "cancel", "dead", "settled", "feed", "other"]
"""Which form a subject has; `other` are those of no run."""

_ROLLOUT: Final[dict[str, Form]] = {"ended": "ended", "adopted": "adopted", "revised": "revised"}


class Heading(NamedTuple):
    """What a subject says; empty where its form does not say it."""

    form: Form
    rollout: str = ""
    key: str = ""
    """Of the call; the number of an adoption, revision, dead letter or a feed's record."""
    kind: str = ""
    instance: str = ""
    slot: int = 0
    run: str = ""
    worker: str = ""


class Noted(NamedTuple):
    """A heading with its place."""

    seq: int
    size: int
    """Bytes of the event."""
    heading: Heading


def heading_of(subject: str) -> Heading:
    """What a subject says. Any subject of a log has a heading."""
    match subject.split("."):
        case [_, _, kind, instance, slot, "request", rollout, key] if slot.isdigit():
            found = Heading("request", rollout, key, kind, instance, int(slot))
        case [_, _, "reply", worker, rollout, key]:
            found = Heading("reply", rollout, key, worker=worker)
        case [_, _, "rollout", what, run, rollout, *number] if what in _ROLLOUT:
            found = Heading(_ROLLOUT[what], rollout, "".join(number), run=run)
        case [_, _, "cancel", run, rollout]:
            found = Heading("cancel", "" if rollout == NO_ROLLOUT else rollout, run=run)
        case [_, _, "dead", kind, instance, rollout, number, *settled]:
            owner = "" if rollout == NO_ROLLOUT else rollout
            found = Heading("settled" if settled else "dead", owner, number, kind, instance)
        case [_, _, "feed", run, feed, number]:
            found = Heading("feed", "", number, "feed", feed, run=run)
        case _:
            found = Heading("other")
    return found


async def headings(
    bus: Bus, *filters: str, partition: int, start: int = 1, last: int | None = None, follow: bool = False
) -> AsyncGenerator[Noted, None]:
    """The headings of one partition that match a filter (all, if none is given), in the log's order.

    From sequence `start` up to sequence `last`, to the present end, or for ever with `follow`.
    """
    stream = bus.subjects.stream(partition)
    wanted = filters or (f"{bus.config.namespace}.{partition}.>",)
    connection = bus._connection  # noqa: SLF001 - a part of the same package
    async with aclosing(read(connection, stream, wanted, start=start, follow=follow, sizes=True)) as found:
        async for stored in found:
            if last is not None and stored.seq > last:
                return
            yield Noted(stored.seq, int(stored.data), heading_of(stored.subject))


async def last_sequence(bus: Bus, partition: int) -> int:
    """The sequence of the newest event of a partition; 0 where it is empty."""
    connection = bus._connection  # noqa: SLF001 - a part of the same package
    return (await stream_info(connection, bus.subjects.stream(partition))).state.last_seq
