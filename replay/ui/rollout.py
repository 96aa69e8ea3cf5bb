"""One rollout as its page gets it: the facts above the story, the story, the lanes, and its events one by one.

Called by the server. Pure, but that one event is read from the source, as it stands there.
"""

from datetime import datetime
from typing import Final

import msgspec

from contracts.codec import encode
from contracts.deployments import WorkerStarted
from contracts.events import Recorded
from contracts.rollouts import Fork, Revised, RolloutFailure, RolloutResult, RolloutStats
from replay.facts import Facts
from replay.source import Source
from replay.trajectory import Trajectory
from replay.ui.entries import Entry
from replay.ui.lanes import Timeline, lanes_of
from replay.ui.telling import Told, tell

MOST: Final = 2 * 1024 * 1024
"""Bytes of an event's data that a page gets; the rest is `replay show --raw`'s."""
_COMPONENTS: Final = msgspec.json.Decoder(dict[str, float])


class Sibling(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout of the same group."""

    rollout_id: str
    outcome: str
    reward: float | None


class RolloutView(msgspec.Struct, frozen=True, kw_only=True):
    """The page of a rollout."""

    rollout_id: str
    run_id: str
    task_index: int
    rollout_index: int
    attempt: int
    parent: str
    fork: Fork | None
    group: str
    agent: str
    environment: str
    state: str
    reward: float | None
    revisions: list[Revised]
    components: dict[str, float]
    extra: dict[str, msgspec.Raw]
    error: RolloutFailure | None
    stats: RolloutStats | None
    asked_version: int | None
    started: datetime
    duration_s: float | None
    workers: list[str]
    code: WorkerStarted | None
    """What is known of the worker that ran the agent last."""
    task: msgspec.Raw
    events: int
    bytes: int
    ended_by: str
    steps: list[Told]
    timeline: Timeline
    group_of: list[Sibling]


class EventLine(msgspec.Struct, frozen=True, kw_only=True):
    """One event, without its data."""

    seq: int
    at: float
    type: str
    key: str
    source: str
    subject: str
    id: str
    cause: str
    """ID of the event that caused it."""
    bytes: int
    worked: float
    captured: bool


class EventData(msgspec.Struct, frozen=True, kw_only=True):
    """One event whole."""

    seq: int
    event: msgspec.Raw
    """As it is stored."""
    data: msgspec.Raw | None
    """Of a claim check: what it refers to."""
    left: int
    """Bytes of the data that are not here, because they are too many; then there is no data at all."""


def rollout_view(trajectory: Trajectory, facts: Facts, group: list[Entry]) -> RolloutView:
    """The page; `group` are the entries of the rollouts that are compared with it. Raises `BrokenHistory`."""
    request, outcome = trajectory.request, trajectory.outcome
    result = outcome if isinstance(outcome, RolloutResult) else None
    extra = dict(result.extra) if result is not None else {}
    components = extra.pop("reward_components", None)
    ran = trajectory.agent_workers(next(trajectory.executions()))
    return RolloutView(
        rollout_id=trajectory.rollout_id,
        run_id=request.run_id,
        task_index=request.task_index,
        rollout_index=request.rollout_index,
        attempt=request.attempt,
        parent=request.parent,
        fork=request.fork,
        group=request.group,
        agent=request.agent,
        environment=facts.environment(request.agent),
        state=trajectory.state,
        reward=trajectory.reward,
        revisions=trajectory.revisions,
        components=_numbers(components),
        extra=extra,
        error=outcome if isinstance(outcome, RolloutFailure) else None,
        stats=outcome.stats if outcome is not None else None,
        asked_version=request.policy_version,
        started=trajectory.started,
        duration_s=trajectory.offset(trajectory.ended) if trajectory.ended is not None else None,
        workers=trajectory.workers,
        code=next((facts.workers[worker] for worker in ran if worker in facts.workers), None),
        task=request.task if len(bytes(request.task)) <= MOST else msgspec.Raw(b"null"),
        events=len(trajectory.events),
        bytes=sum(_bytes(trajectory, recorded) for recorded in trajectory.events),
        ended_by=trajectory.ended.event.source if trajectory.ended is not None else "",
        steps=tell(trajectory),
        timeline=lanes_of(trajectory, facts),
        group_of=[Sibling(rollout_id=row.rollout_id, outcome=row.outcome, reward=row.reward) for row in group],
    )


def event_lines(trajectory: Trajectory) -> list[EventLine]:
    """All events of a rollout in the order of the log."""
    return [_line(trajectory, recorded) for recorded in trajectory.events]


async def event_data(source: Source, rollout_id: str, seq: int) -> EventData | None:
    """One event, as the source has it; None where the rollout has none with this sequence."""
    async for found in source.stream(rollout_id):
        if found.seq == seq:
            break
    else:
        return None
    data = await source.data(found.event) if found.event.dataref else None
    size = len(found.raw) + len(data or b"")
    if size > MOST:
        head = msgspec.structs.replace(found.event, data=msgspec.Raw(b"null"), capture=msgspec.Raw(b"null"))
        return EventData(seq=seq, event=msgspec.Raw(msgspec.json.encode(head)), data=None, left=size)
    return EventData(seq=seq, event=msgspec.Raw(found.raw), data=None if data is None else msgspec.Raw(data), left=0)


def _line(trajectory: Trajectory, recorded: Recorded) -> EventLine:
    event = recorded.event
    return EventLine(
        seq=recorded.seq,
        at=trajectory.offset(recorded),
        type=event.type,
        key=event.callkey,
        source=event.source,
        subject=recorded.subject,
        id=event.id,
        cause=event.causationid,
        bytes=_bytes(trajectory, recorded),
        worked=event.elapsed,
        captured=event.captured,
    )


def _bytes(trajectory: Trajectory, recorded: Recorded) -> int:
    """The size of an event with what it refers to; of a long rollout's about that."""
    event = recorded.event
    referred = sum(map(trajectory.blobs.size, (event.dataref, event.captureref)))
    return len(recorded.raw or encode(event)) + referred


def _numbers(raw: msgspec.Raw | None) -> dict[str, float]:
    """The components of a reward; none where they are no numbers."""
    try:
        return _COMPONENTS.decode(raw) if raw is not None else {}
    except msgspec.DecodeError:
        return {}
