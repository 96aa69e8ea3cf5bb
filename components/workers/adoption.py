"""Adoption: a worker carries on a rollout that another one began, from the rollout's history.

Reads the log, listens to the replies that are still on their way to the workers before, records `rollout.adopted` with
the next epoch (the first writer has it), reads the log again up to that record, and re-executes the agent's code. So
every reply is either in the history or will be heard, also where a replica of the log lags. Called by the agent worker
for rollouts that may have been begun before, and when it finds that another worker wrote one of their calls; the worker
keeps back the replies that arrive meanwhile.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from bus import Bus, Conflict, Replies, Unreachable
from components.durable import Call, Execution, from_recorded, reexecute
from components.durable.history import SUB_CALL, History
from components.workers.rollout import NOT_BEGUN, Rollout
from components.workers.stops import UNSUSPECTED, Departures, in_a_row, was_stopped
from contracts.events import Event, Recorded
from contracts.ids import ROOT_CALL
from contracts.rollouts import Adopted, RolloutResult, TimerRequest

LAG_S: Final = 10.0
"""Seconds that a replica of the log may lag behind its leader."""
_LOOK_AGAIN_S: Final = 0.05

_ADOPTED: Final = msgspec.json.Decoder(Adopted)
_TIMER: Final = msgspec.json.Decoder(TimerRequest)


class Lost(Exception):
    """This rollout is not this worker's any more; `finished` if it already ended."""

    def __init__(self, reason: str, *, finished: bool) -> None:
        self.finished = finished
        super().__init__(reason)


class Exhausted(Exception):
    """Too many workers in a row held this rollout and ended without adding anything to it."""


class Resumed(NamedTuple):
    """Where the rollout stands now."""

    calls: list[Call]
    """What the code asks for and nobody has published."""
    timers: list[tuple[Event, float]]
    """Requests of the timers that have not fired, and seconds until they are due."""


def suspect(rollout: Rollout) -> bool:
    """Whether it may be what ends its workers. It is adopted alone then, so that no other is counted with it."""
    return rollout.delivery.num_delivered > UNSUSPECTED


async def adopt(
    bus: Bus,
    replies: Replies,
    worker: str,
    rollout: Rollout,
    fresh: Callable[[Rollout], Execution[RolloutResult]],
    *,
    departures: Departures,
) -> Resumed | None:
    """Takes the rollout to where its history ends; None if it was ended meanwhile.

    Raises `Lost`, `Exhausted` and `NondeterminismError`.
    """
    rollout.close()
    recorded = await _take_over(bus, replies, worker, rollout)
    mine = [entry for entry in recorded if _mine(rollout, entry.event)]
    data = {entry.seq: await bus.fetch_data(entry.event) for entry in mine if not _is_request(entry.event)}
    if rollout.ended:
        return None
    if mine:
        rollout.taken_at(_taken(rollout, recorded, mine), await _used_s(rollout, recorded, departures))
    rollout.tally.adoptions = len(_claims(rollout, recorded)) - _goes_on_from_parent(rollout, recorded, mine)
    rollout.execution = execution = fresh(rollout)
    blobs = {entry.event.dataref: data[entry.seq] for entry in mine if entry.event.dataref and entry.seq in data}
    calls = reexecute(execution, _history(rollout, recorded, blobs))
    timers, outstanding = [], execution.outstanding
    for entry in mine:
        event = entry.event
        if not _is_request(event):
            rollout.tally.add(event, data[entry.seq])
            rollout.seq = entry.seq
        elif event.type == "timer.requested" and event.callkey in outstanding:
            ago = (datetime.now(UTC) - event.time).total_seconds()
            timers.append((event, _TIMER.decode(event.data).delay - ago))
    return Resumed(calls, timers)


async def adoptions(bus: Bus, partition: int) -> AsyncIterator[tuple[Event, Adopted]]:
    """Every adoption from now on, by whichever worker."""
    subject = bus.subjects.adopted_of(partition)
    last = await bus.last(subject)
    start = 1 if last is None else last.seq + 1
    async for recorded in bus.scan(subject, partition=partition, start=start, follow=True):
        try:
            adopted = _ADOPTED.decode(recorded.event.data)
        except msgspec.DecodeError:
            continue  # whatever it is, the others are to be heard
        yield recorded.event, adopted


async def _take_over(bus: Bus, replies: Replies, worker: str, rollout: Rollout) -> list[Recorded]:
    """Makes the rollout this worker's; returns its history, after which no reply goes unheard."""
    recorded = await bus.history(rollout.id)
    _refuse_if_ended(rollout, recorded)
    if rollout.epoch == NOT_BEGUN:
        await _refuse_if_exhausted(bus, rollout, recorded)
        if not suspect(rollout) and not _begun(rollout, recorded):  # it was given back as it came
            rollout.epoch = 0
            return recorded
    heard = {worker}
    await _hear(replies, rollout, recorded, heard)
    claimed = await _claim(bus, worker, rollout, recorded)
    try:
        async with asyncio.timeout(LAG_S):
            while True:
                recorded = await bus.history(rollout.id)
                if not await _hear(replies, rollout, recorded, heard):
                    if any(entry.seq == claimed for entry in recorded):
                        break
                    await asyncio.sleep(_LOOK_AGAIN_S)
    except TimeoutError:
        raise Unreachable(f"the history of {rollout.id} does not show event {claimed} after {LAG_S:g} s") from None
    _refuse_if_ended(rollout, recorded)
    return recorded


async def _hear(replies: Replies, rollout: Rollout, recorded: list[Recorded], heard: set[str]) -> bool:
    """Listens to all workers whose replies are outstanding; whether one of them was not yet `heard`."""
    answered = {entry.subject for entry in recorded}
    asked = {
        _worker(entry.event)
        for entry in recorded
        if _is_request(entry.event) and _mine(rollout, entry.event) and entry.event.replyto not in answered
    }
    for worker in asked - heard:
        await replies.subscribe_also(worker)
    new = not asked <= heard
    heard |= asked
    return new


async def _claim(bus: Bus, worker: str, rollout: Rollout, recorded: list[Recorded]) -> int:
    """Records the adoption; returns its sequence. A rollout and those nested in it have one row of epochs."""
    latest = max(_claims(rollout, recorded), key=lambda claim: claim.epoch, default=None)
    if latest is not None and rollout.epoch != NOT_BEGUN and latest.epoch > rollout.epoch:
        raise Lost(f"{latest.worker} adopted it as epoch {latest.epoch}", finished=False)
    taken = [_ADOPTED.decode(entry.event.data).epoch for entry in recorded if entry.event.type == "rollout.adopted"]
    rollout.epoch = max(taken, default=0)
    while True:
        rollout.epoch += 1  # before the publish: whoever is heard to have a higher one came later
        event = bus.event(
            type="rollout.adopted",
            subject=bus.subjects.adopted(rollout.request.run_id, rollout.id, rollout.epoch),
            data=msgspec.json.encode(Adopted(epoch=rollout.epoch, worker=worker)),
            rolloutid=rollout.id,
            callkey=rollout.event.callkey,
            causationid=rollout.event.id,
            traceparent=rollout.event.traceparent,
        )
        try:
            return await bus.publish(event)
        except Conflict as conflict:
            if conflict.stored.event.callkey == rollout.event.callkey:
                raise Lost(f"{conflict.stored.event.source} adopted it", finished=False) from conflict


def _mine(rollout: Rollout, event: Event) -> bool:
    """Whether an event is a call, or a reply, of this very execution: not of its parent or of a nested one."""
    key = event.callkey
    return (
        event.subject != rollout.event.subject
        and key.startswith(rollout.prefix)
        and SUB_CALL not in key[len(rollout.prefix) :]
        and key != ROOT_CALL
        and event.type.endswith((".requested", ".replied", ".failed"))
    )


def _goes_on_from_parent(rollout: Rollout, recorded: list[Recorded], mine: list[Recorded]) -> bool:
    """Whether it is a fork that shares calls: its first worker has to claim it too, and adopts it from nobody."""
    request = next((entry.seq for entry in recorded if entry.event.subject == rollout.event.subject), 0)
    return rollout.request.fork is not None and bool(mine) and mine[0].seq < request


def _is_request(event: Event) -> bool:
    return event.type.endswith(".requested")


def _worker(request: Event) -> str:
    """Which worker of agents asked."""
    return request.replyto.split(".")[3]


def _claims(rollout: Rollout, recorded: list[Recorded]) -> list[Adopted]:
    """The adoptions of this very execution."""
    return [
        _ADOPTED.decode(entry.event.data)
        for entry in recorded
        if entry.event.type == "rollout.adopted" and entry.event.callkey == rollout.event.callkey
    ]


def _history(rollout: Rollout, recorded: list[Recorded], blobs: dict[str, bytes]) -> History:
    fork = rollout.request.fork
    routed = fork.routed if fork is not None else None
    return from_recorded(recorded, prefix=rollout.prefix, blobs=blobs, routed=routed)


def _taken(rollout: Rollout, recorded: list[Recorded], mine: list[Recorded]) -> datetime:
    """When the first worker took it. What a fork has from its parent is older: its first worker adopted it."""
    if rollout.request.fork is None:
        return mine[0].event.time
    claims = (entry for entry in recorded if entry.event.type == "rollout.adopted")
    return next((entry.event.time for entry in claims if entry.event.callkey == ROOT_CALL), datetime.now(UTC))


async def _used_s(rollout: Rollout, recorded: list[Recorded], departures: Departures) -> float:
    """Seconds of its deadline that are used: as long as the workers before this one are known to have been there.

    The time does not count in which none was, since the deployment was down or the log away: for a night, it may be.
    """
    holders: list[tuple[str, list[datetime]]] = []
    for entry in recorded:
        event = entry.event
        if event.type == "rollout.adopted" and event.callkey == rollout.event.callkey:
            holders.append((_ADOPTED.decode(event.data).worker, [event.time]))
        elif _is_request(event) and _mine(rollout, event):
            if holders:
                holders[-1][1].append(event.time)
            elif rollout.request.fork is None:  # else it is its parent's
                holders.append((_worker(event), [event.time]))
    used = timedelta()
    for (worker, acts), (_, (taken_over, *_)) in pairwise(holders):
        if (left := await departures.of(worker)) is not None:
            acts.append(min(left, taken_over))
        used += max(acts) - acts[0]
    return used.total_seconds()


def _begun(rollout: Rollout, recorded: list[Recorded]) -> bool:
    return any(_mine(rollout, entry.event) for entry in recorded) or bool(_claims(rollout, recorded))


def _refuse_if_ended(rollout: Rollout, recorded: list[Recorded]) -> None:
    """A nested rollout has ended too when that around it has: nobody waits for it."""
    if any(entry.subject == rollout.event.replyto or ".rollout.ended." in entry.subject for entry in recorded):
        raise Lost("it has already ended", finished=True)


async def _refuse_if_exhausted(bus: Bus, rollout: Rollout, recorded: list[Recorded]) -> None:
    """Counts the workers that held it since anything was last added to its history, but for those told to stop.

    Not its deliveries: a long rollout outlives many workers, and one that was held together with a rollout that ends
    its workers is not to blame.
    """
    added = [entry for entry in recorded if _mine(rollout, entry.event)]
    last = added[-1].seq if added else 0
    before = [entry for entry in recorded if entry.seq <= last]
    since = [entry for entry in recorded if entry.seq > last]
    begun = [_worker(entry.event) for entry in added if _is_request(entry.event)][:1]
    holders = [*begun, *(claim.worker for claim in _claims(rollout, before))][-1:]
    holders += [claim.worker for claim in _claims(rollout, since)]
    if len(holders) < bus.config.max_deliver:
        return
    workers = len([worker for worker in holders if not await was_stopped(bus, worker)])
    if workers >= bus.config.max_deliver:
        raise Exhausted(
            f"{in_a_row(workers)} ended, or gave it back, without adding anything to it: their logs say how they ended"
        )
