"""What is a deployment doing right now, and how fast?

Rates are between two looks at the server's counters; all else is what the later look saw. Called by `jetgym status`.
It reads few events: the one that has waited longest in each pool, and the latest of each policy and each feed.
"""

import asyncio
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from bus import Bus
from bus.overview import LogState, PoolState, overview
from contracts.events import Kind
from orchestrator.feed_records import FeedState, feeds
from orchestrator.launch import resolved_deployment
from orchestrator.policy_versions import newest_version

LOOK_S = 1.0
"""Seconds between two looks."""


class PoolStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One pool."""

    pool: str
    kind: str
    pending: int
    """Requests that no worker has taken yet."""
    in_progress: int
    redelivered: int
    """Of those in progress, the ones that an earlier worker did not finish."""
    oldest_s: float | None
    """Seconds that the oldest pending request has waited."""
    per_s: float | None
    """Requests that workers were done with, a second; one that is delivered twice counts twice."""
    workers: int | None
    """Processes of this deployment's supervisor; None where only the server knows."""
    served: bool
    """Whether some worker asks for requests, or holds some and is there."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment."""

    where: str
    namespace: str
    requested: int
    """Rollouts, of all runs."""
    ended: int
    in_flight: int
    ended_per_s: float | None
    events: int
    events_per_s: float | None
    dead_letters: int
    """Those about which nobody has decided."""
    log_bytes: int
    blob_bytes: int
    log_limit: int | None
    """Bytes of each partition, and of the blobs, at which it takes no more; None for the server's own limit."""
    log_used: float | None
    """Of that limit, by the fullest of them."""
    free_bytes: int | None
    """On the disk of the log, where it is on this machine."""
    looked_s: float
    """Seconds between the two looks that rates are from; 0 where there was one."""
    pools: tuple[PoolStatus, ...]
    policies: dict[str, int] = {}
    """The policy version that was announced last, of each model instance of which any was."""
    feeds: tuple[FeedState, ...] = ()
    """Of trainers."""


class Observer:
    """Looks at one deployment again and again."""

    def __init__(
        self, bus: Bus, where: str, *, workers: Iterable[str] | None, store: Path | None, at_rest: bool = False
    ) -> None:
        """`workers` are the names of its worker processes, like `policy-0`; `store` is the log's directory.

        None works on a log `at_rest`, whatever was being worked on when its server ended.
        """
        self._bus, self._where, self._store, self._at_rest = bus, where, store, at_rest
        self._workers = None if workers is None else [name.rpartition("-")[0] for name in workers]
        self._before: tuple[float, LogState] | None = None
        self._took_s = 0.0

    async def look(self) -> Status:
        """The state now; rates are since the look before. Raises `BusError`."""
        began = time.monotonic()
        instances = await self._instances()
        state = await overview(self._bus, instances)
        models = [name for kind, name in instances if kind == "models"]
        versions = {name: await newest_version(self._bus, name) for name in models}
        trainers = await feeds(self._bus)
        self._took_s = time.monotonic() - began
        before, self._before = self._before, (began, state)
        seconds = 0.0 if before is None else began - before[0]
        return msgspec.structs.replace(
            self._status(state, None if before is None else before[1], seconds),
            policies={name: version for name, version in versions.items() if version is not None},
            feeds=tuple(trainers),
        )

    async def pause(self) -> None:
        """Until the next look: longer where looking takes the server long."""
        await asyncio.sleep(max(LOOK_S, 4 * self._took_s))

    async def _instances(self) -> list[tuple[Kind, str]]:
        resolved = await resolved_deployment(self._bus)
        return [] if resolved is None else [(each.kind, name) for name, each in resolved.descriptions.items()]

    def _status(self, now: LogState, before: LogState | None, seconds: float) -> Status:
        pools = {} if before is None else {(pool.kind, pool.instance): pool for pool in before.pools}
        limits = [(stream.bytes / stream.limit, stream.limit) for stream in now.streams if stream.limit]
        used, limit = max(limits, default=(None, None))
        return Status(
            where=self._where,
            namespace=self._bus.config.namespace,
            requested=now.requested,
            ended=now.ended,
            in_flight=now.requested - now.ended,
            ended_per_s=None if before is None else _rate(now.ended - before.ended, seconds),
            events=now.events,
            events_per_s=None if before is None else _rate(now.events - before.events, seconds),
            dead_letters=now.dead,
            log_bytes=now.bytes,
            blob_bytes=sum(stream.bytes for stream in now.streams) - now.bytes,
            log_limit=limit,
            log_used=None if used is None else round(used, 4),
            free_bytes=None if self._store is None else shutil.disk_usage(self._store).free,
            looked_s=round(seconds, 3),
            pools=tuple(self._pool(pool, pools, seconds) for pool in now.pools),
        )

    def _pool(self, now: PoolState, before: Mapping[tuple[str, str], PoolState], seconds: float) -> PoolStatus:
        earlier = before.get((now.kind, now.instance))
        return PoolStatus(
            pool=now.instance,
            kind=now.kind,
            pending=now.waiting,
            in_progress=now.held,
            redelivered=now.redelivered,
            oldest_s=None if now.oldest_s is None else round(now.oldest_s, 3),
            per_s=None if earlier is None else _rate(now.finished - earlier.finished, seconds),
            workers=None if self._workers is None else self._workers.count(now.instance),
            served=bool(now.served) and not self._at_rest,
        )


def _rate(count: int, seconds: float) -> float:
    return round(max(0, count) / seconds, 1)
