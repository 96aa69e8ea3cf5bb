"""Adoption: a worker carries on a rollout that another one began, from the rollout's history.

Reads the log, records `rollout.adopted` with the next epoch (the first writer has it), listens to the replies that
are still on their way to the workers before, reads the log once more, and re-executes the agent's code. Called by
the agent worker for redelivered rollouts and when it finds that another worker wrote one of its calls; the worker
keeps back the replies that arrive meanwhile.
"""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from bus import Conflict
from components.durable import Call, from_recorded, reexecute
from components.durable.history import SUB_CALL
from components.workers.rollout import Rollout
from components.workers.tally import Tally
from contracts.events import Event, Recorded
from contracts.ids import ROOT_CALL
from contracts.rollouts import Adopted, TimerRequest

if TYPE_CHECKING:
    from components.workers.agent import AgentWorker

_ADOPTED = msgspec.json.Decoder(Adopted)
_TIMER = msgspec.json.Decoder(TimerRequest)


class Lost(Exception):
    """This rollout is not this worker's any more; `finished` if it already ended."""

    def __init__(self, reason: str, *, finished: bool) -> None:
        self.finished = finished
        super().__init__(reason)


async def adopt(worker: "AgentWorker", rollout: Rollout) -> list[Call]:
    """Re-executes the rollout from its history; returns the calls that it makes beyond it.

    Raises `Lost`, or `NondeterminismError`.
    """
    recorded = await worker.bus.history(rollout.id)
    _refuse_if_ended(rollout, recorded)
    await _claim(worker, rollout, recorded)
    for before in _workers_before(worker, rollout, recorded):
        await worker.hear(before)
    recorded = await worker.bus.history(rollout.id)
    _refuse_if_ended(rollout, recorded)

    data = {entry.seq: await worker.bus.fetch_data(entry.event) for entry in recorded if _mine(rollout, entry.event)}
    blobs = {entry.event.dataref: data[entry.seq] for entry in recorded if entry.event.dataref and entry.seq in data}
    rollout.tally = Tally(rollout.taken)
    rollout.tally.adoptions = rollout.epoch
    worker.close(rollout)
    rollout.execution = execution = worker.execution_of(rollout)
    calls = reexecute(execution, from_recorded(recorded, prefix=rollout.prefix, blobs=blobs))
    rollout.seq = max((entry.seq for entry in recorded), default=0)
    outstanding = execution.outstanding
    for entry in recorded:
        event = entry.event
        if entry.seq not in data:
            continue
        if not event.type.endswith(".requested"):
            rollout.tally.add(event, data[entry.seq])
        elif event.type == "timer.requested" and event.callkey in outstanding:
            due = event.time + timedelta(seconds=_TIMER.decode(data[entry.seq]).delay)
            worker.arm(rollout, event, (due - datetime.now(UTC)).total_seconds())
    return calls


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


def _refuse_if_ended(rollout: Rollout, recorded: list[Recorded]) -> None:
    if any(entry.subject == rollout.event.replyto for entry in recorded):
        raise Lost("it has already ended", finished=True)


async def _claim(worker: "AgentWorker", rollout: Rollout, recorded: list[Recorded]) -> None:
    """Records the adoption. The epochs of a rollout and of those nested in it are one row of numbers."""
    adopted = [
        (_ADOPTED.decode(entry.event.data), entry.event.callkey)
        for entry in recorded
        if entry.event.type == "rollout.adopted"
    ]
    ours = [claim for claim, key in adopted if key == rollout.event.callkey]
    latest = max(ours, key=lambda claim: claim.epoch, default=None)
    if latest is not None and rollout.execution is not None and latest.worker != worker.worker:
        raise Lost(f"{latest.worker} adopted it as epoch {latest.epoch}", finished=False)
    epoch = max((claim.epoch for claim, _ in adopted), default=0)
    while True:
        epoch += 1
        event = worker.bus.event(
            type="rollout.adopted",
            subject=worker.bus.subjects.adopted(rollout.request.run_id, rollout.id, epoch),
            data=msgspec.json.encode(Adopted(epoch=epoch, worker=worker.worker)),
            rolloutid=rollout.id,
            callkey=rollout.event.callkey,
            causationid=rollout.event.id,
            traceparent=rollout.event.traceparent,
        )
        try:
            await worker.bus.publish(event)
        except Conflict as conflict:
            if conflict.stored.event.callkey == rollout.event.callkey:
                raise Lost(f"{conflict.stored.event.source} adopted it", finished=False) from conflict
        else:
            rollout.epoch = epoch
            return


def _workers_before(worker: "AgentWorker", rollout: Rollout, recorded: list[Recorded]) -> set[str]:
    """The workers whose replies are outstanding, other than this one."""
    answered = {entry.subject for entry in recorded}
    return {
        entry.event.replyto.split(".")[3]
        for entry in recorded
        if entry.event.type.endswith(".requested")
        and _mine(rollout, entry.event)
        and entry.event.replyto not in answered
    } - {worker.worker}
