"""Where trajectories are read from: what every source can do.

A source is the log of a deployment (`log_source`) or files of exported events (`file_source`); `opening` picks one.
All verbs read through this and nothing else, so each works on logs and on files alike. A source never writes.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import msgspec

from contracts.events import Event, Recorded
from replay.errors import UnknownName
from replay.payloads import Heads
from replay.trajectory import Trajectory


class Source(Protocol):
    """Recorded events of one or more runs."""

    @property
    def name(self) -> str:
        """What it is, for a title or an error."""

    async def history(self, rollout_id: str) -> list[Recorded]:
        """All events of a rollout in the order of the log; empty where there is no such rollout."""

    def stream(self, rollout_id: str) -> AsyncIterator[Recorded]:
        """`history`, as a stream: a long rollout is never in memory as a whole."""

    async def data(self, event: Event) -> bytes:
        """The event's data, also where it is a claim check. Raises `NoSource` if its blob is missing."""

    async def fetch_blob(self, reference: str) -> bytes:
        """What a `dataref` or `captureref` refers to. Raises `NoSource` if it is missing."""

    def outline(self) -> AsyncIterator[Recorded]:
        """The requests and the terminal events of all rollouts as a stream: `by_ending` says in which order."""

    def revisions(self) -> AsyncIterator[Recorded]:
        """The `rollout.revised` events of all rollouts, those of one in their order."""

    async def deployment(self) -> list[Recorded]:
        """What the deployment said of itself: the `deployment.*` events, in the order of the log."""


async def by_ending(outlines: Sequence[AsyncIterator[Recorded]]) -> AsyncIterator[Recorded]:
    """The outlines of several partitions as one in the order of ending, by the times of the ends.

    Each partition keeps its order, and where the requests stand has no effect on that of the ends: an export and its
    import, in which they stand elsewhere, have the order of the log.
    """
    ends: list[Recorded | None] = [None] * len(outlines)
    to_read = range(len(outlines))
    while True:
        for place in to_read:
            ends[place] = None
            async for recorded in outlines[place]:
                if recorded.event.type != "rollout.requested":
                    ends[place] = recorded
                    break
                yield recorded
        there = [(found.event.time, place) for place, found in enumerate(ends) if found is not None]
        if not there:
            return
        _, first = min(there)
        found = ends[first]
        assert found is not None
        yield found
        to_read = range(first, first + 1)


async def load(source: Source, rollout_id: str) -> Trajectory:
    """The trajectory of a rollout whose full ID is known, with the data that it refers to.

    Of a long one only the outline is in memory (`payloads`). Not with its captures that are claim checks
    (`with_captures`), which are large, and which nothing but samples and comparisons looks at.
    Raises `UnknownName`, `NoSource`, `BrokenHistory`.
    """
    heads = Heads()
    events = []
    async for recorded in source.stream(rollout_id):
        if (reference := recorded.event.dataref) and reference not in heads.payloads:
            heads.payloads.add(reference, await source.data(recorded.event))
        events.append(heads.of(recorded))
    if not events:
        raise UnknownName(f"there is no rollout {rollout_id!r} in {source.name}")
    return Trajectory(rollout_id, events, heads.payloads)


async def says(source: Source, rollout_id: str, text: str) -> bool:
    """Whether a text stands in what was asked or answered in a rollout, whatever the case of its letters."""
    wanted = msgspec.json.encode(text)[1:-1].lower()
    twice = msgspec.json.encode(wanted.decode())[1:-1]  # as it stands in JSON within JSON, like a tool's arguments
    async for recorded in source.stream(rollout_id):
        data = (await source.data(recorded.event)).lower()
        if wanted in data or twice in data:
            return True
    return False


async def with_captures(source: Source, trajectory: Trajectory) -> Trajectory:
    """The trajectory, with the captures that its events refer to among its blobs."""
    for recorded in trajectory.events:
        if (reference := recorded.event.captureref) and reference not in trajectory.blobs:
            trajectory.blobs.add(reference, await source.fetch_blob(reference))
    return trajectory
