"""May a call be what ends its workers, and how much company does it get then?

Deliveries do not tell: all that a worker held comes again when it ends. So a call that was delivered more than twice is
written down each time that it is begun. Its first try has any company, the second as many calls beside it as the root
of the worker's places, and all others none. What is innocent is answered on the way; what ends its workers does so
alone. Three crashes of which that is known are enough to bury it. Where nobody knows, it may be chance each time, as
when workers are killed by who has that machine, so there it takes `log.max_deliver` of them. Called by `callee` before
it begins a call. It never answers anything.
"""

from hashlib import blake2b
from math import isqrt
from typing import Final, NamedTuple

import msgspec

from bus import Bus, Conflict
from bus.errors import Unreadable
from components.workers.stops import has_crashed, was_stopped
from contracts.deployments import CallTried
from contracts.events import Event, Kind

CRASHES: Final = 3
"""Workers that a call is known to have crashed alone, after which it is buried."""

_TRIED: Final = msgspec.json.Decoder(CallTried)


class Suspect(NamedTuple):
    """A call that may be what ends its workers."""

    number: int
    """Of its next try, counted from 1."""
    ended: int
    """Tries whose workers ended, or gave it back, without being told to."""
    exhausted: bool
    """It has been tried often enough, at last alone."""
    alone: bool
    """Nothing else may be in progress in the worker that tries it."""
    places: int
    """Of its worker's, that it takes."""


async def suspect(bus: Bus, request: Event, places: int) -> Suspect:
    """What the log says of a call's tries, for a worker with so many `places`; raises `BusError`."""
    limit = bus.config.max_deliver
    said = ended = crashed = 0
    while (tried := await bus.last(_subject(bus, request, said + 1))) is not None:
        said += 1
        worker = tried.event.source.rpartition("/")[2]
        if not await was_stopped(bus, worker):
            ended += 1
            crashed += _TRIED.decode(tried.event.data).alone and await has_crashed(bus, worker)
    exhausted = ended >= limit or crashed >= CRASHES
    alone = ended + 1 >= limit or ended > 1 or places == 1
    share = places if alone else isqrt(places) if ended else 1
    return Suspect(said + 1, ended, exhausted=exhausted, alone=alone, places=1 if exhausted else share)


async def say_trying(bus: Bus, request: Event, kind: Kind, instance: str, suspected: Suspect) -> None:
    """Writes into the log that the call is begun now; raises `BusError`."""
    data = msgspec.json.encode(CallTried(kind=kind, instance=instance, places=suspected.places, alone=suspected.alone))
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
        except (Conflict, Unreadable):  # a replica of the log lags, or another worker has it too
            number += 1
        else:
            return


def _subject(bus: Bus, request: Event, number: int) -> str:
    call = blake2b(request.subject.encode(), digest_size=16).hexdigest()  # names may be of any length
    return bus.subjects.deployment("trying", f"{call}-{number}")
