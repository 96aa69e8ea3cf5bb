"""What stands in the log and waits in the pools right now: numbers for an operator.

Called by `jetgym status`, by audits, and before a run on workers that others keep. It asks the server for counts, and
workers that do not pull whether they are there; of events it reads only the one that has waited longest in each pool.
"""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, TypeVar, cast

import msgspec

from bus.bus import Bus
from bus.direct import first_from
from bus.history import recorded_of
from bus.presence import is_anyone_present
from bus.subjects import consumer_name
from bus.topology import stream_info
from contracts.events import Kind
from contracts.ids import ROOT_CALL

T = TypeVar("T")

_PAST_THE_END: Final = 1_000_000_000
"""An offset behind every subject: the server then counts them and lists none."""
_KINDS: Final = ("agents", "models", "resources")


class SlotState(msgspec.Struct, frozen=True, kw_only=True):
    """One slot of a pool in one partition. Sequences are those of the partition."""

    kind: Kind
    instance: str
    slot: int
    delivered: int
    """Sequence up to which requests have been taken by workers."""
    settled: int
    """Sequence up to which all requests are acknowledged."""
    deliveries: int
    """So many there were, redeliveries with them."""
    waiting: int
    held: int
    redelivered: int
    pulls: int
    """Pull requests of workers that wait for work."""


class PoolState(msgspec.Struct, frozen=True, kw_only=True):
    """One pool, over all its slots and partitions."""

    kind: str
    instance: str
    waiting: int
    """Requests that no worker has taken yet."""
    held: int
    """Requests that workers hold."""
    redelivered: int
    """Of these, the ones that an earlier worker did not finish."""
    served: frozenset[int]
    """The slots from which some worker pulls, or holds requests and is there."""
    finished: int = 0
    """Deliveries that workers are done with: given back or answered."""
    oldest_s: float | None = None
    """Seconds that the oldest of those that wait has waited; None where none waits, or it was not asked."""


class StreamState(msgspec.Struct, frozen=True, kw_only=True):
    """One stream of the log: a partition, or the blobs."""

    name: str
    messages: int
    bytes: int
    """As the server counts them, with subjects and headers, before compression."""
    limit: int | None
    """The bytes at which it refuses more; None where only the server's own limit bounds it."""


class LogState(msgspec.Struct, frozen=True, kw_only=True):
    """The log, over all partitions."""

    events: int
    bytes: int
    """Of the events; blobs are beside them."""
    streams: tuple[StreamState, ...]
    requested: int
    """Rollouts asked for."""
    ended: int
    """Rollouts completed, failed or cancelled."""
    dead: int
    """Dead letters about which nobody has decided."""
    pools: tuple[PoolState, ...]


class _Counted(msgspec.Struct):
    total: int = 0


class _Place(msgspec.Struct):
    consumer_seq: int = 0
    stream_seq: int = 0


class _Consumer(msgspec.Struct):
    name: str
    delivered: _Place
    ack_floor: _Place
    num_pending: int = 0
    num_ack_pending: int = 0
    num_redelivered: int = 0
    num_waiting: int = 0


class _Consumers(msgspec.Struct):
    total: int = 0
    consumers: list[_Consumer] | None = None


async def overview(bus: Bus, instances: Iterable[tuple[Kind, str]] = ()) -> LogState:
    """The state of the deployment's log and pools; raises `BusError`, `ApiRefused` where there is no log.

    Of `instances` also the pools are told that no worker has ever served.
    """
    requested = ended = dead = 0
    streams = []
    for partition in range(bus.config.partitions):
        start = f"{bus.config.namespace}.{partition}"
        streams.append(await _stream(bus, bus.subjects.stream(partition)))
        # what ends between the two counts must not be counted as ended and not as asked for
        ended += await _count(bus, partition, f"{start}.rollout.ended.>")
        requested += await _count(bus, partition, f"{start}.agents.*.*.request.*.{ROOT_CALL}")
        dead += await _count(bus, partition, bus.subjects.dead_letters(partition))
        dead -= await _count(bus, partition, bus.subjects.settlements(partition))
    return LogState(
        events=sum(stream.messages for stream in streams),
        bytes=sum(stream.bytes for stream in streams),
        streams=(*streams, await _stream(bus, bus.subjects.blob_stream)),
        requested=requested,
        ended=ended,
        dead=dead,
        pools=tuple([await _with_oldest(bus, pool) for pool in await _pools(bus, instances)]),
    )


async def pool_states(bus: Bus) -> tuple[PoolState, ...]:
    """The pools that some worker has ever served; raises as `overview` does."""
    return tuple(state for state, _ in await _pools(bus, ()))


async def slot_states(bus: Bus, partition: int) -> list[SlotState]:
    """The slots of all pools in one partition, as far as some worker has ever served them; raises as `overview`."""
    found = []
    for consumer in await _consumers(bus, partition):
        kind, _, rest = consumer.name.partition("-")
        instance, _, slot = rest.rpartition("-")
        if kind in _KINDS and slot.isdigit():
            found.append(
                SlotState(
                    kind=cast("Kind", kind),
                    instance=instance,
                    slot=int(slot),
                    delivered=consumer.delivered.stream_seq,
                    settled=consumer.ack_floor.stream_seq,
                    deliveries=consumer.delivered.consumer_seq,
                    waiting=consumer.num_pending,
                    held=consumer.num_ack_pending,
                    redelivered=consumer.num_redelivered,
                    pulls=consumer.num_waiting,
                )
            )
    return found


async def slots_from(bus: Bus, kind: Kind, instance: str, first: int) -> list[int]:
    """The slots of a pool from this one on that some worker has ever served; raises as `overview`."""
    found = [each for partition in range(bus.config.partitions) for each in await slot_states(bus, partition)]
    return sorted(
        {each.slot for each in found if (each.kind, each.instance) == (kind, instance) and each.slot >= first}
    )


_Slots = list[tuple[int, SlotState]]
"""With their partitions."""


async def _pools(bus: Bus, instances: Iterable[tuple[Kind, str]]) -> list[tuple[PoolState, _Slots]]:
    pools: dict[tuple[str, str], _Slots] = {}
    for partition in range(bus.config.partitions):
        for slot in await slot_states(bus, partition):
            pools.setdefault((slot.kind, slot.instance), []).append((partition, slot))
    for kind, instance in instances:
        if (kind, instance) not in pools:
            pools[kind, instance] = [
                (partition, await _never_served(bus, partition, kind, instance))
                for partition in range(bus.config.partitions)
            ]
    served = await _served(bus, [place for slots in pools.values() for place in slots])
    return [
        (
            PoolState(
                kind=kind,
                instance=instance,
                waiting=sum(slot.waiting for _, slot in slots),
                held=sum(slot.held for _, slot in slots),
                redelivered=sum(slot.redelivered for _, slot in slots),
                served=frozenset(slot.slot for _, slot in slots if (kind, instance, slot.slot) in served),
                finished=sum(slot.deliveries - slot.held for _, slot in slots),
            ),
            slots,
        )
        for (kind, instance), slots in sorted(pools.items())
    ]


async def _served(bus: Bus, slots: _Slots) -> set[tuple[str, str, int]]:
    """Those slots that some worker reads."""
    found = await asyncio.gather(*(_is_served(bus, partition, slot) for partition, slot in slots))
    return {(slot.kind, slot.instance, slot.slot) for (_, slot), served in zip(slots, found, strict=True) if served}


async def _is_served(bus: Bus, partition: int, slot: SlotState) -> bool:
    if slot.pulls or not slot.held:
        return slot.pulls > 0
    connection = bus._connection  # noqa: SLF001 - a part of the same package
    consumer = consumer_name(slot.kind, slot.instance, slot.slot)
    return await is_anyone_present(connection, bus.subjects.stream(partition), consumer)


async def _never_served(bus: Bus, partition: int, kind: Kind, instance: str) -> SlotState:
    """All that was ever asked of it waits; its slots are taken as one."""
    waiting = await _count(bus, partition, f"{bus.config.namespace}.{partition}.{kind}.{instance}.*.request.>")
    return SlotState(
        kind=kind, instance=instance, slot=-1, delivered=0, settled=0, deliveries=0,
        waiting=waiting, held=0, redelivered=0, pulls=0,
    )  # fmt: skip


async def _with_oldest(bus: Bus, pool: tuple[PoolState, _Slots]) -> PoolState:
    state, slots = pool
    since = [await _waits_since(bus, partition, slot) for partition, slot in slots if slot.waiting]
    if not (known := [time for time in since if time is not None]):
        return state
    waited = (datetime.now(UTC) - min(known)).total_seconds()
    return msgspec.structs.replace(state, oldest_s=max(0.0, waited))


async def _waits_since(bus: Bus, partition: int, slot: SlotState) -> datetime | None:
    """When the first request that was not yet taken was written; None if it is gone meanwhile, or unreadable."""
    which = "*" if slot.slot < 0 else slot.slot
    subject = f"{bus.config.namespace}.{partition}.{slot.kind}.{slot.instance}.{which}.request.>"
    connection = bus._connection  # noqa: SLF001 - a part of the same package
    stored = await first_from(connection, bus.subjects.stream(partition), subject, slot.delivered + 1)
    recorded = None if stored is None else recorded_of(stored)
    return None if recorded is None else recorded.event.time


async def _stream(bus: Bus, name: str) -> StreamState:
    connection = bus._connection  # noqa: SLF001 - a part of the same package
    info = await stream_info(connection, name)
    limit = info.config.get("max_bytes", -1)
    return StreamState(
        name=name, messages=info.state.messages, bytes=info.state.bytes, limit=limit if limit > 0 else None
    )


async def _count(bus: Bus, partition: int, subjects: str) -> int:
    body = {"subjects_filter": subjects, "offset": _PAST_THE_END}
    return (await _ask(bus, "STREAM.INFO", partition, body, _Counted)).total


async def _consumers(bus: Bus, partition: int) -> list[_Consumer]:
    found: list[_Consumer] = []
    while True:
        page = await _ask(bus, "CONSUMER.LIST", partition, {"offset": len(found)}, _Consumers)
        found += page.consumers or []
        if not page.consumers or len(found) >= page.total:
            return found


async def _ask(bus: Bus, verb: str, partition: int, body: dict[str, Any] | None, answer: type[T]) -> T:
    connection = bus._connection  # noqa: SLF001 - a part of the same package
    return await connection.api(f"{verb}.{bus.subjects.stream(partition)}", body, answer)
