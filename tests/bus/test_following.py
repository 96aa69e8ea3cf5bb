"""A rollout told while it goes on, from the log of a real server."""

import io
from collections.abc import AsyncIterator

import pytest
from rich.console import Console

from bus import Bus, LogConfig
from replay.following import follow, following
from replay.log_source import LogSource
from replay.story import Story
from tests.unit.replay.examples import recorded_run, trajectory_of

ROLLOUT = "r1-00000-00"


@pytest.fixture
async def bus(server: str, config: LogConfig) -> AsyncIterator[Bus]:
    async with await Bus.connect(server, config, name="test/following", writer="test") as bus:
        await bus.ensure_log()
        yield bus


async def test_a_live_rollout_is_told_piece_by_piece_and_comes_to_the_story_of_the_whole(bus: Bus) -> None:
    """At any moment what was told is the beginning of what is told at the end."""
    recorder = recorded_run(1, bus.subjects)
    log = [recorded.event for recorded in recorder.log]
    facts, events = log[:2], log[2:]
    output = io.StringIO()
    console = Console(file=output, width=80)
    Story(trajectory_of(recorder), console).draw()
    begun, rest, pieces = events[:3], events[3:], []  # its request, and a model call with its reply
    for event in [*facts, *begun]:
        await bus.publish(event)
    async for piece in follow(LogSource(bus, "here"), ROLLOUT, console):
        pieces.append(piece)
        assert output.getvalue().startswith("".join(pieces))
        for event in rest:
            await bus.publish(event)
        rest = []
    assert len(pieces) == 2
    assert "".join(pieces) == output.getvalue()


async def test_a_live_rollouts_events_are_told_once_each_as_they_come(bus: Bus) -> None:
    log = recorded_run(1, bus.subjects).log
    _, _, *begun = log[:5]
    rest = log[5:]
    for recorded in log[:5]:
        await bus.publish(recorded.event)
    found = []
    async for told in following(LogSource(bus, "here"), ROLLOUT):
        found.append(told.event.id)
        if len(found) == len(begun):
            for recorded in rest:
                await bus.publish(recorded.event)
    assert found == [recorded.event.id for recorded in [*begun, *rest]]
