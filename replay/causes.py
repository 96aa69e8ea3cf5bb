"""Why did an event happen? The chain of causes from it back to the task.

Called by `replay why`. Pure. Each event names the one that caused it: a reply its request, a request the reply after
which the agent's code made it, the first ones the rollout's request. Of an end the log names only what was asked for,
so the reply that the code was given last stands between. With each event goes what the log knows of its way: how long
it waited and was worked on, who took a rollout over, which workers started meanwhile.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from components.durable.history import SUB_CALL
from contracts.deployments import WorkerStarted
from contracts.events import Event, Recorded
from contracts.ids import ROOT_CALL
from contracts.rollouts import RolloutFailure, RolloutResult
from replay.errors import UnknownName
from replay.facts import Facts
from replay.page import number, seconds
from replay.points import END, point
from replay.trajectory import Call, Trajectory, is_fork_point, worker_of

_WORKER: Final = msgspec.json.Decoder(WorkerStarted)


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the chain."""

    seq: int
    id: str
    type: str
    at_s: float
    """Seconds since the rollout was requested."""
    call_key: str
    worker: str
    """Who wrote it."""
    why: str
    """How the next link, which is earlier, led to this one."""
    waited_s: float | None = None
    """Of a reply: what its request was in the queue and on its way."""
    worked_s: float | None = None
    notes: tuple[str, ...] = ()
    """What else happened on its way: adoptions, workers that were lost, dead letters."""


def event_named(trajectory: Trajectory, name: str) -> Recorded:
    """The event that is meant: by its ID or number, by a call's key (its reply, if it has one), or `end`.

    Raises `ReplayError`.
    """
    for recorded in trajectory.events:
        if name in (recorded.event.id, str(recorded.seq)):
            return recorded
    if name == END and trajectory.ended is not None:
        return trajectory.ended
    if name in (ROOT_CALL, "0"):
        return trajectory.requested
    if name == END:
        return trajectory.events[-1]
    if (call := point(trajectory, name).call) is None:
        raise UnknownName(f"{name!r} is no event of {trajectory.rollout_id}")
    return call.replied or call.requested


def chain(trajectory: Trajectory, start: Recorded, facts: Facts) -> list[Link]:
    """The links from an event back to the rollout's request, or as far as its causes are in the rollout."""
    return list(_Chain(trajectory, facts).links(start))


class _Chain:
    def __init__(self, trajectory: Trajectory, facts: Facts) -> None:
        self._trajectory = trajectory
        self._by_id = {recorded.event.id: recorded for recorded in trajectory.events}
        self._started = [
            (recorded, _WORKER.decode(data))
            for recorded, data in facts.events
            if recorded.event.type == "deployment.worker"
        ]

    def links(self, start: Recorded) -> Iterator[Link]:
        current: Recorded | None = start
        seen: set[int] = set()
        while current is not None and current.seq not in seen:
            seen.add(current.seq)
            cause = self._cause(current)
            yield self._link(current, cause)
            current = cause

    def _cause(self, recorded: Recorded) -> Recorded | None:
        if self._ends_execution(recorded) and (last := self._last_heard(recorded)) is not None:
            return last
        return self._by_id.get(recorded.event.causationid)

    def _ends_execution(self, recorded: Recorded) -> bool:
        return recorded is self._trajectory.ended or recorded.event.type in ("agent.replied", "agent.failed")

    def _last_heard(self, ended: Recorded) -> Recorded | None:
        """The last reply that the execution's code was given before it ended."""
        key = ended.event.callkey
        prefix = "" if key in ("", ROOT_CALL) or ended is self._trajectory.ended else key + SUB_CALL
        heard = [
            call.replied
            for call in self._trajectory.calls.values()
            if call.replied is not None
            and call.replied.seq < ended.seq
            and call.key.startswith(prefix)
            and SUB_CALL not in call.key[len(prefix) :]
        ]
        return max(heard, key=lambda recorded: recorded.seq, default=None)

    def _link(self, recorded: Recorded, cause: Recorded | None) -> Link:
        event = recorded.event
        call = self._trajectory.calls.get(event.callkey)
        replied = call is not None and call.replied is recorded
        waited = worked = None
        if call is not None and replied:
            took = (event.time - call.requested.event.time).total_seconds()
            worked = event.elapsed
            waited = max(0.0, took - worked) if call.what not in ("agent", "timer") else None
        return Link(
            seq=recorded.seq,
            id=event.id,
            type=event.type,
            at_s=self._trajectory.offset(recorded),
            call_key=event.callkey if event.callkey != ROOT_CALL else "",
            worker=worker_of(event),
            why=self._why(recorded, cause, call if replied else None),
            waited_s=waited,
            worked_s=worked,
            notes=tuple(self._notes(recorded, cause, call if replied else None)),
        )

    def _why(self, recorded: Recorded, cause: Recorded | None, answered: Call | None) -> str:
        event = recorded.event
        if recorded is self._trajectory.requested:
            return self._task()
        if answered is not None and answered.what == "timer":
            return "the timer was due"
        if self._ends_execution(recorded):
            after = f" after event {cause.seq}" if cause is not None else ""
            return f"{self._agent(event)} ended{after}: {self._outcome(recorded)}"
        if answered is not None:
            failed = " with an error" if answered.failed else ""
            return f"{answered.instance} answered {answered.key}{failed}"
        return _asked(event, cause)

    def _agent(self, event: Event) -> str:
        call = self._trajectory.calls.get(event.callkey)
        return call.instance if call is not None else self._trajectory.request.agent

    def _outcome(self, recorded: Recorded) -> str:
        found = self._trajectory.ending(recorded)
        if isinstance(found, RolloutResult):
            return f"reward {number(found.reward)}"
        return f"{found.kind}: {found.message}" if isinstance(found, RolloutFailure) else "no outcome"

    def _task(self) -> str:
        request = self._trajectory.request
        parent = f", after {request.parent}" if request.parent else ""
        run = f" of run {request.run_id}" if request.run_id else ""
        return f"task {request.task_index}{run}, rollout {request.rollout_index} of its group{parent}"

    def _notes(self, recorded: Recorded, cause: Recorded | None, answered: Call | None) -> Iterator[str]:
        since = answered.requested if answered is not None else cause
        if since is None:
            return
        for adoption in self._trajectory.adoptions:
            if since.seq < adoption.recorded.seq < recorded.seq and not is_fork_point(self._trajectory, adoption):
                yield f"adopted by {adoption.worker} (epoch {adoption.epoch}) meanwhile"
        for other in self._trajectory.others:
            if since.seq < other.seq < recorded.seq and other.event.type.startswith("dead."):
                yield f"{other.event.type} meanwhile, event {other.seq}"
        if answered is not None:
            yield from self._lost(recorded, answered)

    def _lost(self, recorded: Recorded, answered: Call) -> Iterator[str]:
        """Workers of the pool that started meanwhile: what an earlier one held came to another one again."""
        began, ended = answered.requested.event.time, recorded.event.time
        for started, worker in self._started:
            if (worker.kind, worker.instance) == (
                answered.kind,
                answered.instance,
            ) and began < started.event.time < ended:
                after = (started.event.time - began).total_seconds()
                yield f"worker {worker.worker} started {seconds(after)} after the request: it may have come twice"


def _asked(event: Event, cause: Recorded | None) -> str:
    """How an event that is no answer came about."""
    if event.type == "rollout.adopted":
        return "another worker took the rollout over"
    if cause is None:
        return f"its cause {event.causationid or '(not recorded)'} is not among the rollout's events"
    if not event.type.endswith(".requested"):
        return f"follows event {cause.seq}"
    first = cause.event.type.endswith(".requested")
    return "the code began with it" if first else f"the code asked for it once it had event {cause.seq}"
