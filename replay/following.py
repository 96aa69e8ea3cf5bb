"""Tells a rollout while it goes on: what `show --follow` prints.

Of the story, what has been told stays as it is: a stretch of calls is told when all calls in it are answered, since
only then is it known which of them ran in parallel. Of the events (`--raw`) each is told as it comes. It reads the
rollout's history again and again, and writes nothing.
"""

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Final

from rich.console import Console

from components.durable.history import SUB_CALL
from contracts.events import Recorded
from replay.source import Source, load
from replay.story import Story
from replay.trajectory import ENDS, Trajectory

EVERY_S: Final = 0.5
"""Seconds between two looks."""


async def follow(source: Source, rollout_id: str, console: Console, *, full: bool = False) -> AsyncIterator[str]:
    """The story in pieces, as there is more of it, until the rollout has ended. Raises `ReplayError`."""
    told = ""
    while True:
        trajectory = await load(source, rollout_id)
        text = _drawn(trajectory, console, full=full)
        if text != told:
            yield text.removeprefix(told)
            told = text
        if trajectory.ended is not None:
            return
        await asyncio.sleep(EVERY_S)


async def following(source: Source, rollout_id: str) -> AsyncIterator[Recorded]:
    """The rollout's events as they come, until it has ended. Raises `ReplayError`."""
    seen, ended = 0, False
    while not ended:
        async for recorded in source.stream(rollout_id):
            if recorded.seq > seen:
                seen = recorded.seq
                ended |= recorded.event.type in ENDS
                yield recorded
        if not ended:
            await asyncio.sleep(EVERY_S)


def _drawn(trajectory: Trajectory, console: Console, *, full: bool) -> str:
    output = io.StringIO()
    page = Console(
        file=output,
        width=console.width,
        force_terminal=console.is_terminal,
        color_system=console.color_system,  # type: ignore[arg-type]  # it is one that a console has
        highlight=False,
    )
    if trajectory.ended is not None:
        Story(trajectory, page, full=full).draw()
    else:
        Story(_settled(trajectory), page, full=full).draw_steps()
    return output.getvalue()


def _settled(trajectory: Trajectory) -> Trajectory:
    """The rollout up to where its agent last waited for nothing but timers."""
    waits: set[str] = set()
    settled = 0
    for place, recorded in enumerate(trajectory.events, start=1):
        event = recorded.event
        call = trajectory.calls.get(event.callkey)
        if call is not None and SUB_CALL not in call.key and call.what != "timer":
            if recorded is call.requested:
                waits.add(call.key)
            elif recorded is call.replied:
                waits.discard(call.key)
        if not waits:
            settled = place
    events = trajectory.events[:settled]
    if trajectory.requested not in events:
        events = [trajectory.requested]
    return Trajectory(trajectory.rollout_id, events, trajectory.blobs)
