"""Rollouts as Chrome trace events, for Perfetto (https://ui.perfetto.dev) and chrome://tracing.

Called by `replay export --format chrome`. Pure. A rollout is a process, a row of a lane a thread; what a call waited
and what its callee worked are two slices within one. A viewer drops slices of a thread that cross, so times are whole
microseconds, each rounded once: what ends where something begins does so in the trace too.
"""

from datetime import datetime
from typing import Any, Final

from replay.facts import Facts
from replay.trajectory import Trajectory
from replay.ui.lanes import Bar, lanes_of

Json = dict[str, Any]

_MICROSECONDS: Final = 1_000_000


def trace_events(trajectory: Trajectory, facts: Facts, process: int, origin: datetime) -> list[Json]:
    """The events of one rollout, as the process with this number; times are since `origin`."""
    start = (trajectory.started - origin).total_seconds()
    state = trajectory.state if trajectory.reward is None else f"reward {trajectory.reward:g}"
    events: list[Json] = [_named("process_name", process, 0, f"{trajectory.rollout_id} ({state})")]
    thread = 0
    first: list[int] = []
    timeline = lanes_of(trajectory, facts)
    for lane in timeline.lanes:
        first.append(thread + 1)
        for row in range(max(1, lane.rows)):
            thread += 1
            more = f" {row + 1}" if lane.rows > 1 else ""
            events.append(_named("thread_name", process, thread, f"{lane.kind} {lane.name}{more}"))
            for bar in lane.bars:
                if bar.row == row:
                    events += _slices(bar, lane.kind, process, thread, start)
    for mark in timeline.marks:
        events.append(
            {
                "ph": "i",
                "name": mark.text,
                "cat": mark.what,
                "ts": _us(start + mark.at),
                "pid": process,
                "tid": first[mark.lane] if mark.lane is not None else 0,
                "s": "t" if mark.lane is not None else "p",
            }
        )
    return events


def _slices(bar: Bar, kind: str, process: int, thread: int, start: float) -> list[Json]:
    place = {"pid": process, "tid": thread, "ph": "X", "cat": kind}
    told = {"call": bar.key, "worker": bar.worker, "state": bar.state}
    name = f"{bar.name or bar.state} {bar.key}".strip()
    begin, works, end = (_us(start + moment) for moment in (bar.start, bar.works, bar.end))
    found = [{**place, "name": name, "ts": begin, "dur": end - begin, "args": told}]
    if begin < works:
        found.append({**place, "name": "queued", "ts": begin, "dur": works - begin})
        if works < end:
            found.append({**place, "name": "works", "ts": works, "dur": end - works})
    return found


def _named(what: str, process: int, thread: int, name: str) -> Json:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _us(seconds: float) -> int:
    """Not before the origin, which a worker's clock may be."""
    return max(0, round(seconds * _MICROSECONDS))
