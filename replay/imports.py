"""How do exported events get into a log again?

Called by `replay import`. Events keep their IDs, subjects and bytes, and their order, so that an export of the log is
the file again. First writer wins: what the log has already is left as it is, and where it has another event in the same
place, nothing is written at all. A log that workers serve is refused, since they would take the recorded requests for
new ones. Events go one after the other, as their order counts; of the file, where each event begins is in memory.
"""

from collections.abc import Callable
from hashlib import blake2b, sha256
from typing import Final

import msgspec

from bus import Bus, Conflict, LogConfig
from bus.errors import EventIdReused, PayloadTooLarge
from bus.overview import pool_states
from contracts.deployments import ResolvedDeployment
from contracts.events import Recorded
from contracts.ids import partition_of
from replay.errors import CannotImport, Contradicted, NoSource
from replay.file_source import FileSource

_RESOLVED: Final = msgspec.json.Decoder(ResolvedDeployment)


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What an import did."""

    rollouts: int
    events: int
    there: int
    """Events of these that the log had already."""
    blobs: int


async def log_of_file(source: FileSource) -> LogConfig:
    """The log that the events are from, as they say it themselves. Raises `NoSource` for a file without events."""
    first = next(source.events(), None)
    if first is None:
        raise NoSource(f"{source.name} holds no event")
    config = LogConfig(namespace=first.subject.partition(".")[0])
    for recorded in await source.deployment():
        if recorded.event.type == "deployment.resolved":
            config = LogConfig.of_record(_RESOLVED.decode(await source.data(recorded.event)).log)
    highest = max(int(recorded.subject.split(".")[1]) for recorded in source.events())
    if config.partitions <= highest:
        raise NoSource(
            f"{source.name} does not say how many partitions its log had, and one is not all: it has an event in "
            f"partition {highest}. Export the rollouts anew, with what their deployment said of itself"
        )
    return config.model_copy(update={"durability": "fast", "max_bytes": -1})


async def check(source: FileSource, bus: Bus) -> int:
    """How many events the log has already. Raises `CannotImport` where it does not take these."""
    if pools := await pool_states(bus):
        names = ", ".join(sorted({f"{pool.kind}/{pool.instance}" for pool in pools}))
        raise CannotImport(
            f"the log has pools ({names}), which would take the recorded requests for new ones: import into a log of "
            f"its own, with --output DIRECTORY or at another server"
        )
    there = 0
    met: dict[str, bytes] = {}
    for recorded in source.events():
        _check_place(recorded, bus.config)
        if not recorded.event.rolloutid or recorded.event.type == "cancel.requested":
            if met.setdefault(recorded.subject, digest := _digest(recorded)) != digest:
                raise CannotImport(
                    f"event {recorded.seq} of {source.name}: {recorded.subject} stands before, and says "
                    f"something else: these are not exports of one log"
                )
            found = await bus.last(recorded.subject)
            there += found is not None
            _refuse(recorded, found)
    for reference in source.blobs:
        if f"sha256:{sha256(await source.fetch_blob(reference)).hexdigest()}" != reference:
            raise NoSource(f"{source.name}: the data of {reference} has another digest: the file was changed")
    return there + await _there(source, bus)


async def _there(source: FileSource, bus: Bus) -> int:
    """Of the events of rollouts."""
    there = 0
    for rollout in source.rollouts:
        stored = {found.subject: _digest(found) async for found in bus.history_stream(rollout)}
        if not stored:
            continue
        async for recorded in source.stream(rollout):
            if (digest := stored.get(recorded.subject)) is not None:
                there += 1
                if digest != _digest(recorded):
                    _refuse(recorded, await bus.last(recorded.subject))
    return there


async def import_events(source: FileSource, bus: Bus, report: Callable[[int], None] = lambda _: None) -> Imported:
    """Writes the events of a file into a log that `ensure_log` has made; `report` is told how many there are by now.

    Raises `CannotImport`, `BusError`.
    """
    there = await check(source, bus)
    for reference in source.blobs:
        await bus.store_blob(await source.fetch_blob(reference))
    events = 0
    for recorded in source.events():
        try:
            await bus.copy(recorded)
        except (Conflict, EventIdReused) as error:
            raise Contradicted(_contradiction(recorded, error.stored)) from error
        except PayloadTooLarge as error:
            raise CannotImport(f"event {recorded.seq} of {source.name}: {error}") from error
        events += 1
        report(events)
    return Imported(rollouts=len(source.rollouts), events=events, there=there, blobs=len(source.blobs))


def _check_place(recorded: Recorded, config: LogConfig) -> None:
    tokens = recorded.subject.split(".")
    rollout = recorded.event.rolloutid
    wanted = [partition_of(rollout, config.partitions)] if rollout else range(config.partitions)
    if tokens[0] != config.namespace or tokens[1:2] not in [[str(partition)] for partition in wanted]:
        raise CannotImport(
            f"event {recorded.seq} ({recorded.subject}) is not of a log with namespace {config.namespace!r} and "
            f"{config.partitions} partitions, like others in the file: import the files of one deployment at a time"
        )


def _digest(recorded: Recorded) -> bytes:
    return blake2b(recorded.raw, digest_size=16).digest()


def _refuse(recorded: Recorded, stored: Recorded | None) -> None:
    if stored is not None and stored.raw != recorded.raw:
        raise Contradicted(_contradiction(recorded, stored))


def _contradiction(recorded: Recorded, stored: Recorded) -> str:
    return (
        f"the log has another event in the place of event {recorded.seq} of the file: {recorded.subject} holds "
        f"{stored.event.id!r} of {stored.event.time:%Y-%m-%d %H:%M:%S}, not {recorded.event.id!r} of "
        f"{recorded.event.time:%Y-%m-%d %H:%M:%S}"
    )
