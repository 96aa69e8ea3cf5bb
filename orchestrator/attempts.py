"""How is a rollout that failed asked for again?

Its end stands, as first writer. So asking again is a new attempt: a rollout of its own, whose ID and number follow from
the one before, so that asking twice asks once. Called by `jetgym dead requeue`; `collect` awaits what was asked again.
"""

from contextlib import suppress
from secrets import token_hex
from typing import Final

import msgspec

from bus import Bus, Conflict
from bus.letters import decision
from contracts.events import Recorded
from contracts.ids import ROOT_CALL, RolloutId, attempt_id, first_attempt
from contracts.rollouts import RolloutRequest
from orchestrator.errors import OrchestratorError

_REQUEST: Final = msgspec.json.Decoder(RolloutRequest)


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
        request = _REQUEST.decode(await bus.fetch_data(event))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotAgain(f"the request of rollout {rollout} cannot be read: {error}") from error
    if event.subject != recorded.subject or event.replyto != bus.subjects.ended(request.run_id, rollout):
        raise NotAgain(f"the request of rollout {rollout} contradicts the subject that it came under")
    return recorded, request


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
    attempt = request.attempt + 1
    new = attempt_id(first_attempt(rollout, request.attempt), attempt)
    event = bus.event(
        recorded.event.type,
        bus.subjects.request("agents", recorded.subject.split(".")[3], 1, new, ROOT_CALL),
        msgspec.json.encode(msgspec.structs.replace(request, attempt=attempt, parent=rollout)),
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


async def asked_again(bus: Bus, run: str) -> dict[RolloutId, RolloutRequest]:
    """The new attempts that an operator asked for in a run; raises `BusError`."""
    found: dict[RolloutId, RolloutRequest] = {}
    for partition in range(bus.config.partitions):
        async for settled in bus.scan(bus.subjects.settlements(partition), partition=partition):
            if not (rollout := decision(settled).rollout):
                continue
            with suppress(NotAgain):  # the log has been pruned
                _, request = await request_of_rollout(bus, rollout)
                if request.run_id == run:
                    found[RolloutId(rollout)] = request
    return found
