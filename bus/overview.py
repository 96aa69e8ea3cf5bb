"""What stands in the log and waits in the pools right now: numbers for an operator.

Called by `jetgym status`, and before a run on workers that others keep. It asks the server for counts, and reads no
event.
"""

from typing import Any, Final, TypeVar

import msgspec

from bus.bus import Bus
from contracts.ids import ROOT_CALL

T = TypeVar("T")

_PAST_THE_END: Final = 1_000_000_000
"""An offset behind every subject: the server then counts them and lists none."""
_KINDS: Final = ("agents", "models", "resources")


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
    """The slots from which some worker pulls, or holds requests."""


class LogState(msgspec.Struct, frozen=True, kw_only=True):
    """The log, over all partitions."""

    events: int
    bytes: int
    requested: int
    """Rollouts asked for."""
    ended: int
    """Rollouts completed, failed or cancelled."""
    dead: int
    """Dead letters."""
    pools: tuple[PoolState, ...]


class _Counted(msgspec.Struct):
    total: int = 0


class _State(msgspec.Struct):
    messages: int
    bytes: int


class _Stream(msgspec.Struct):
    state: _State


class _Consumer(msgspec.Struct):
    name: str
    num_pending: int = 0
    num_ack_pending: int = 0
    num_redelivered: int = 0
    num_waiting: int = 0


class _Consumers(msgspec.Struct):
    total: int = 0
    consumers: list[_Consumer] | None = None


async def overview(bus: Bus) -> LogState:
    """The state of the deployment's log and pools; raises `BusError`, `ApiRefused` where there is no log."""
    events = size = requested = ended = dead = 0
    for partition in range(bus.config.partitions):
        start = f"{bus.config.namespace}.{partition}"
        state = (await _ask(bus, "STREAM.INFO", partition, None, _Stream)).state
        events, size = events + state.messages, size + state.bytes
        requested += await _count(bus, partition, f"{start}.agents.*.*.request.*.{ROOT_CALL}")
        ended += await _count(bus, partition, f"{start}.rollout.ended.>")
        dead += await _count(bus, partition, f"{start}.dead.>")
    return LogState(
        events=events, bytes=size, requested=requested, ended=ended, dead=dead, pools=await pool_states(bus)
    )


async def pool_states(bus: Bus) -> tuple[PoolState, ...]:
    """The pools that some worker has ever served; raises as `overview` does."""
    pools: dict[tuple[str, str], list[tuple[int, _Consumer]]] = {}
    for partition in range(bus.config.partitions):
        for consumer in await _consumers(bus, partition):
            kind, _, rest = consumer.name.partition("-")
            if kind in _KINDS:
                instance, _, slot = rest.rpartition("-")
                pools.setdefault((kind, instance), []).append((int(slot), consumer))
    return tuple(
        PoolState(
            kind=kind,
            instance=instance,
            waiting=sum(consumer.num_pending for _, consumer in consumers),
            held=sum(consumer.num_ack_pending for _, consumer in consumers),
            redelivered=sum(consumer.num_redelivered for _, consumer in consumers),
            served=frozenset(slot for slot, consumer in consumers if consumer.num_waiting or consumer.num_ack_pending),
        )
        for (kind, instance), consumers in sorted(pools.items())
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
