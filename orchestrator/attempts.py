"""How is a rollout that failed asked for again?

Its end stands, as first writer. So asking again is a new attempt: a rollout of its own, whose ID and number follow from
the one before, so that asking twice asks once. Called by `jetgym dead requeue`, and by `collect`, which asks again as
the config's `retry` says and awaits whatever was asked again.
"""

from contextlib import suppress
from secrets import token_hex

import msgspec

from bus import Bus, Conflict, DeadLetter
from components.workers.cancellations import cancelled_because
from contracts.events import Recorded
from contracts.ids import ROOT_CALL, RolloutId, attempt_id, first_attempt
from contracts.rollouts import RolloutRequest
from orchestrator.errors import OrchestratorError
from orchestrator.requests import UnreadableRequest, read_request


class NotAgain(OrchestratorError):
    """This rollout cannot be asked for again; the message says why."""


async def request_of_rollout(bus: Bus, rollout: str) -> tuple[Recorded, RolloutRequest]:
    """The event that asked for a rollout, and what it says; raises `NotAgain`, `BusError`."""
    start = f"{bus.config.namespace}.{bus.subjects.partition(rollout)}"
    recorded = await bus.last(f"{start}.agents.*.*.request.{rollout}.{ROOT_CALL}")
    if recorded is None:
        raise NotAgain(f"the request of rollout {rollout} is not in the log, or no event that can be read")
    event = recorded.event
    try:
        request = await read_request(bus, event)
    except UnreadableRequest as error:
        raise NotAgain(str(error)) from error
    if event.replyto != bus.subjects.ended(request.run_id, rollout):
        raise NotAgain(f"the request of rollout {rollout} contradicts the subject that it came under")
    return recorded, request


Attempt = tuple[RolloutId, RolloutRequest]
"""A new attempt: its rollout ID and what is asked."""


def next_attempt(rollout: str, request: RolloutRequest) -> Attempt:
    """The attempt after this one."""
    attempt = request.attempt + 1
    new = attempt_id(first_attempt(rollout, request.attempt), attempt)
    return new, msgspec.structs.replace(request, attempt=attempt, parent=rollout)


async def ask_again(bus: Bus, rollout: str, cause: str) -> RolloutId:
    """Asks for a new attempt of a rollout that failed, because of the event with the ID `cause`; returns its ID.

    Raises `NotAgain`, `BusError`.
    """
    recorded, request = await request_of_rollout(bus, rollout)
    ended = await bus.last(recorded.event.replyto)
    if ended is None:
        raise NotAgain(f"rollout {rollout} has not ended, so there is nothing to ask for again")
    if ended.event.type != "rollout.failed":
        raise NotAgain(f"rollout {rollout} ended as {ended.event.type.rpartition('.')[2]}, it did not fail")
    new, again = next_attempt(rollout, request)
    event = bus.event(
        recorded.event.type,
        bus.subjects.request("agents", recorded.subject.split(".")[3], 1, new, ROOT_CALL),
        msgspec.json.encode(again),
        rolloutid=new,
        callkey=ROOT_CALL,
        replyto=bus.subjects.ended(request.run_id, new),
        causationid=cause,
        traceparent=f"00-{token_hex(16)}-{token_hex(8)}-01",
    )
    try:
        await bus.publish(event)
    except Conflict:
        if (await request_of_rollout(bus, new))[1].parent != rollout:
            raise
    return new


async def ask_once_more(bus: Bus, rollout: str, cause: str) -> RolloutId:
    """Asks for an attempt after the latest one of a rollout; returns the ID of that which is under way then.

    Raises `NotAgain`, also where the latest one did not fail, or it is cancelled for good, and `BusError`.
    """
    _, request = await request_of_rollout(bus, rollout)
    latest = RolloutId(rollout)
    while (later := await asked_again(bus, latest, request)) is not None:
        latest, request = later
    if latest != rollout and await bus.last(bus.subjects.ended(request.run_id, latest)) is None:
        return latest
    reason = await cancelled_because(bus, request.run_id, first_attempt(latest, request.attempt))
    if reason is not None:
        raise NotAgain(f"it, or its whole run, was cancelled ({reason}), and so would be each further attempt")
    return await ask_again(bus, latest, cause)


async def asked_again(bus: Bus, rollout: str, request: RolloutRequest) -> Attempt | None:
    """The attempt after this one, where it was asked for already; raises `BusError`."""
    new, _ = next_attempt(rollout, request)
    try:
        _, found = await request_of_rollout(bus, new)
    except NotAgain:
        return None
    return (new, found) if found.parent == rollout else None


async def give_up(bus: Bus, rollout: str, message: str) -> None:
    """Makes a dead letter of the request of a rollout that is not asked for again; raises `BusError`."""
    with suppress(NotAgain):  # what is not in the log cannot be asked for by anybody
        recorded, request = await request_of_rollout(bus, rollout)
        letter = DeadLetter(
            reason="exhausted",
            message=message,
            subject=recorded.subject,
            seq=recorded.seq,
            num_delivered=request.attempt + 1,
            raw=recorded.raw,
            event=recorded.event,
        )
        await bus.dead_letter(letter, "agents", request.agent)
