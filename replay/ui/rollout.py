"""One rollout as its page gets it: the facts above the story, the story, the lanes, and its events one by one.

Called by the server. Pure, but that one event is read from the source, as it stands there.
"""

from typing import Final

import msgspec

from contracts.codec import encode
from contracts.events import Recorded
from contracts.rollouts import Fork
from replay.document import RolloutHead, head
from replay.facts import Facts
from replay.source import Source
from replay.story import revised_text
from replay.trajectory import Trajectory, worker_of
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


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """A later score."""

    at: float
    """Seconds since the rollout was requested."""
    by: str
    text: str
    """The reward, and its parts where it has named ones."""


class RolloutView(RolloutHead, frozen=True, kw_only=True):
    """The page of a rollout; the components of its reward are not in its `extra`."""

    attempt: int
    parent: str
    fork: Fork | None
    group: str
    revisions: list[Revision]
    components: dict[str, float]
    asked_version: int | None
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
    request, above = trajectory.request, msgspec.structs.asdict(head(trajectory, facts))
    above["extra"] = dict(above["extra"])
    components = above["extra"].pop("reward_components", None)
    return RolloutView(
        **above,
        attempt=request.attempt,
        parent=request.parent,
        fork=request.fork,
        group=request.group,
        revisions=[
            Revision(at=trajectory.offset(recorded), by=worker_of(recorded.event), text=revised_text(revised))
            for recorded, revised in zip(trajectory.revised, trajectory.revisions, strict=True)
        ],
        components=_numbers(components),
        asked_version=request.policy_version,
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
