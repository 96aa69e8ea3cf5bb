"""The timeline of a rollout as lanes: who waited and who worked when, and where nothing happened.

Pure. A lane is an agent's execution, or one instance that was called. Long stretches in which
nothing happens are made short; `scale` says which. Called by the server; the page draws what is here.
"""

from collections import deque
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Final, Literal

import msgspec

from contracts.deployments import WorkerStarted
from replay.facts import Facts
from replay.trajectory import REVISED, Adoption, AgentRun, Call, Trajectory, is_fork_point, worker_of

_GAP: Final = 0.08
"""From this share of the whole on, a stretch is made short in which nothing begins or ends and no call is worked on."""
_LONG: Final = 0.6
"""And one in which a call is worked on from this share on."""
_SHOWN: Final = 0.4
"""What is made short is shown as this share of what it would have to be longer than."""
_WORKER: Final = msgspec.json.Decoder(WorkerStarted)

State = Literal["answered", "failed", "open", "ran", "shared", "lost"]


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """A call, or a stretch of an agent's execution. Seconds since the rollout was requested."""

    key: str
    """Of the call; empty for the rollout's own execution."""
    name: str
    """`model`, `tool`, …, or the worker that ran the agent."""
    start: float
    works: float
    """From here on it is worked on; what is before is queue and travel."""
    end: float
    state: State
    worker: str
    row: int
    """Bars that overlap are on different rows of their lane."""


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """One party."""

    kind: str
    """`agents`, `models`, `tools`, `verifier`, `session`, `timers`."""
    name: str
    rows: int
    bars: list[Bar]


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened at one moment."""

    at: float
    what: Literal["adopted", "forked", "worker", "letter", "event"]
    """`worker`: one of a lane's pool started, so that what it held before came again to another."""
    lane: int | None
    text: str


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the time, and the part of the width (from 0 to 1) that shows it."""

    start: float
    end: float
    left: float
    right: float
    compressed: bool


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. What a fork shares with its parent happened before it was requested."""

    begin: float
    """0, or before."""
    total: float
    lanes: list[Lane]
    marks: list[Mark]
    scale: list[Stretch]


def lanes_of(trajectory: Trajectory, facts: Facts) -> Timeline:
    """The lanes of a rollout. It ends with its outcome: a revision may be of another week."""
    offsets = [trajectory.offset(recorded) for recorded in trajectory.events if recorded.event.type != REVISED]
    begin, total = min(offsets), max(offsets)
    lanes = [_execution(trajectory, run, total) for run in trajectory.executions()]
    called: dict[tuple[str, str], list[Bar]] = {}
    for call in trajectory.calls.values():
        if call.what != "agent":
            called.setdefault(_lane_of(call), []).append(_bar(trajectory, call, total))
    for kind, name in sorted(called, key=lambda lane: (_place(lane[0]), lane)):
        lanes.append(_stacked(kind, name, called[kind, name]))
    lanes.sort(key=lambda lane: _place(lane.kind))
    marks = _marks(trajectory, facts, lanes, total)
    bars = [bar for lane in lanes for bar in lane.bars]
    moments = {moment for bar in bars for moment in (bar.start, bar.works, bar.end)} | {mark.at for mark in marks}
    busy = [(bar.works, bar.end) for lane in lanes if lane.kind not in ("agents", "timers") for bar in lane.bars]
    return Timeline(begin=begin, total=total, lanes=lanes, marks=marks, scale=scale(moments, busy, begin, total))


def scale(moments: Collection[float], busy: Sequence[tuple[float, float]], begin: float, total: float) -> list[Stretch]:
    """Which part of the width each part of the time gets.

    `moments` are those at which something begins or ends; `busy` are the spans in which a call is worked on.
    """
    edges = sorted({begin, 0.0, total, *(moment for moment in moments if begin <= moment <= total)})
    merged: list[tuple[float, float, float]] = []
    later, until = deque(sorted(busy)), begin  # `until`: so long is worked on any that have begun
    for start, end in pairwise(edges):
        while later and later[0][0] <= start:
            until = max(until, later.popleft()[1])
        works = end <= until
        most = (_LONG if works else _GAP) * (total - begin)
        width = most * _SHOWN if end - start > most else end - start
        whole = width == end - start
        if merged and whole and merged[-1][2] == merged[-1][1] - merged[-1][0]:
            merged[-1] = merged[-1][0], end, end - merged[-1][0]
        else:
            merged.append((start, end, width))
    whole_width = sum(width for _, _, width in merged) or 1.0
    at, found = 0.0, []
    for start, end, width in merged:
        left, right = at / whole_width, (at + width) / whole_width
        found.append(Stretch(start=start, end=end, left=left, right=right, compressed=width != end - start))
        at += width
    return found


def _execution(trajectory: Trajectory, run: AgentRun, total: float) -> Lane:
    """An agent's execution, split where another worker took over; in order also where their clocks are not."""
    begun = trajectory.offset(run.requested)
    over = total if run.replied is None else trajectory.offset(run.replied)
    made = [call.requested for call in trajectory.calls.values() if run.owns(call.key)]
    written = sorted([*made, run.replied] if run.replied is not None else made, key=lambda recorded: recorded.seq)
    taken = _taken(trajectory, run, begun, [trajectory.offset(recorded) for recorded in written] or [over])
    key = run.requested.event.callkey if run.prefix else ""
    adoptions = [adoption for adoption in trajectory.adoptions if adoption.prefix == run.prefix]
    bars: list[Bar] = []
    start, works = begun, taken
    for adoption in adoptions:
        at = max(start, trajectory.offset(adoption.recorded))
        before = [recorded for recorded in written if recorded.seq < adoption.recorded.seq]
        last = max([trajectory.offset(recorded) for recorded in before if trajectory.offset(recorded) <= at] or [works])
        worker = worker_of(before[-1].event) if before else ""
        works = min(works, at)
        last = min(max(last, works), at)
        if is_fork_point(trajectory, adoption):
            bars.append(Bar(key=key, name="", start=start, works=start, end=at, state="shared", worker="", row=0))
            start = works = at
            continue
        bars += [
            Bar(key=key, name=worker, start=start, works=works, end=last, state="ran", worker=worker, row=0),
            Bar(key=key, name="", start=last, works=last, end=at, state="lost", worker="", row=0),
        ]
        start = works = at
    over = max(start, over)
    works = min(works, over)
    worker = adoptions[-1].worker if adoptions else (worker_of(written[-1].event) if written else "")
    failed = run.replied is not None and not run.replied.event.type.endswith(("completed", "replied"))
    state: State = "open" if run.replied is None else "failed" if failed else "ran"
    bars.append(Bar(key=key, name=worker, start=start, works=works, end=over, state=state, worker=worker, row=0))
    return Lane(kind="agents", name=run.agent, rows=1, bars=bars)


def _told(trajectory: Trajectory, adoption: Adoption) -> str:
    if is_fork_point(trajectory, adoption):
        return f"forked: {adoption.worker} went on from here"
    return f"adopted by {adoption.worker}, epoch {adoption.epoch}"


def _taken(trajectory: Trajectory, run: AgentRun, begun: float, written: list[float]) -> float:
    """When a worker took the execution: as it said at the end, else when it first wrote something."""
    outcome = trajectory.ending(run.replied)
    if outcome is not None and outcome.stats is not None:
        return min(begun + outcome.stats.timings.queue_s, max(begun, min(written)))
    return max(begun, min(written))


def _lane_of(call: Call) -> tuple[str, str]:
    if call.kind == "resources":
        return {"verify": "verifier", "session": "session"}.get(call.what, "tools"), call.instance
    return call.kind, call.instance


def _place(kind: str) -> int:
    order = ("agents", "models", "tools", "session", "verifier", "timers")
    return order.index(kind) if kind in order else len(order)


def _bar(trajectory: Trajectory, call: Call, total: float) -> Bar:
    start = trajectory.offset(call.requested)
    if call.replied is None:
        return Bar(key=call.key, name=call.what, start=start, works=total, end=total, state="open", worker="", row=0)
    end = max(start, trajectory.offset(call.replied))
    return Bar(
        key=call.key,
        name=call.what,
        start=start,
        works=end if call.kind == "timers" else max(start, end - call.replied.event.elapsed),
        end=end,
        state="failed" if call.failed else "answered",
        worker=call.worker,
        row=0,
    )


def _stacked(kind: str, name: str, bars: list[Bar]) -> Lane:
    """Puts bars that overlap onto different rows."""
    free: list[float] = []
    placed = []
    for bar in sorted(bars, key=lambda each: (each.start, each.end)):
        row = next((row for row, until in enumerate(free) if until <= bar.start), len(free))
        if row == len(free):
            free.append(0.0)
        free[row] = bar.end
        placed.append(msgspec.structs.replace(bar, row=row))
    return Lane(kind=kind, name=name, rows=len(free), bars=placed)


def _marks(trajectory: Trajectory, facts: Facts, lanes: list[Lane], total: float) -> list[Mark]:
    agents = [run.prefix for run in trajectory.executions()]
    marks = [
        Mark(
            at=trajectory.offset(adoption.recorded),
            what="forked" if is_fork_point(trajectory, adoption) else "adopted",
            lane=agents.index(adoption.prefix) if adoption.prefix in agents else None,
            text=_told(trajectory, adoption),
        )
        for adoption in trajectory.adoptions
    ]
    marks += [
        Mark(
            at=trajectory.offset(other),
            what="letter" if other.subject.split(".")[2:3] == ["dead"] else "event",
            lane=None,
            text=f"{other.event.type} by {other.event.source}",
        )
        for other in trajectory.others
    ]
    for recorded, data in facts.events:
        at = trajectory.offset(recorded)
        if recorded.event.type == "deployment.worker" and 0 < at < total:
            worker = _WORKER.decode(data)
            lane = next((place for place, lane in enumerate(lanes) if lane.name == worker.instance), None)
            marks.append(Mark(at=at, what="worker", lane=lane, text=f"{worker.worker} started"))
    return sorted(marks, key=lambda mark: mark.at)
