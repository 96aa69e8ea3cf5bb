"""May a call be what ends its workers, and how much company does it get then?

Deliveries do not tell: all that a worker held comes again when it ends. So a call that was delivered more than twice is
written down each time that it is begun, and each such try takes twice the places of the one before, at last all of the
worker's. What is innocent is answered on the way; what ends its workers does so alone in the end, and only that is
buried. Called by `callee` before it begins a call. It never answers anything.
"""

from hashlib import blake2b
from typing import NamedTuple

import msgspec

from bus import Bus, Conflict
from components.workers.stops import was_stopped
from contracts.deployments import CallTried
from contracts.events import Event, Kind


class Suspect(NamedTuple):
    """A call that may be what ends its workers."""

    number: int
    """Of its next try, counted from 1."""
    ended: int
    """Tries whose workers ended, or gave it back, without being told to."""
    exhausted: bool
    """It has been tried often enough, at last alone."""
    places: int
    """Of its worker's, that it takes."""


async def suspect(bus: Bus, request: Event, places: int) -> Suspect:
    """What the log says of a call's tries, for a worker with so many `places`; raises `BusError`."""
    limit = bus.config.max_deliver
    said = ended = 0
    while (tried := await bus.last(_subject(bus, request, said + 1))) is not None:
        said += 1
        ended += not await was_stopped(bus, tried.event.source.rpartition("/")[2])
    if ended >= limit:
        return Suspect(said + 1, ended, exhausted=True, places=1)
    alone = ended + 1 >= limit
    return Suspect(said + 1, ended, exhausted=False, places=places if alone else min(2**ended, places))


async def say_trying(bus: Bus, request: Event, kind: Kind, instance: str, suspected: Suspect) -> None:
    """Writes into the log that the call is begun now; raises `BusError`."""
    data = msgspec.json.encode(CallTried(kind=kind, instance=instance, places=suspected.places))
    number = suspected.number
    while True:
        event = bus.event(
            type="deployment.trying",
            subject=_subject(bus, request, number),
            data=data,
            rolloutid=request.rolloutid,
            callkey=request.callkey,
            causationid=request.id,
        )
        try:
            await bus.publish(event)
        except Conflict:  # a replica of the log lags, or another worker has it too
            number += 1
        else:
            return


def _subject(bus: Bus, request: Event, number: int) -> str:
    call = blake2b(request.subject.encode(), digest_size=16).hexdigest()  # names may be of any length
    return bus.subjects.deployment("trying", f"{call}-{number}")
