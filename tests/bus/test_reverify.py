"""Revisions of rewards in the log of a real server."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from bus import Bus, LogConfig
from components.loading import add_roots
from contracts.rollouts import RolloutResult
from orchestrator.collect import outcomes_in_log
from replay.bulk import Bulk
from replay.facts import facts_of
from replay.log_source import LogSource
from replay.reverify import append, rescore
from replay.rows import rows
from replay.source import load
from tests.unit.replay.examples import recorded_run

VERIFIER = """
from components.resources import Resources, TaskFields


class StrictResources(Resources):
    async def verify(self, response) -> float:
        return 0.25 if "35" in response.output_text else 0.0
"""
ROLLOUT = "r1-00000-00"


@pytest.fixture
async def bus(server: str, config: LogConfig) -> AsyncIterator[Bus]:
    async with await Bus.connect(server, config, name="test/reverify", writer="test") as bus:
        await bus.ensure_log()
        for recorded in recorded_run(2, bus.subjects).log:
            await bus.publish(recorded.event)
        yield bus


@pytest.fixture
def override(tmp_path: Path) -> dict[str, object]:
    folder = tmp_path / "components" / "resources" / "strict"
    folder.mkdir(parents=True)
    (folder / "app.py").write_text(VERIFIER)
    (folder / "requirements.txt").write_text("")
    add_roots([tmp_path])
    return {"calc_env": {"resources": {"strict": {}}}}


async def test_r4_revisions_are_appended_and_twice_the_same_verifier_gives_equal_rewards(
    bus: Bus, override: dict[str, object], tmp_path: Path
) -> None:
    """R4: two events more, and each one that was there is byte for byte what it was."""
    source = LogSource(bus, "here")
    before = [event.raw for event in await bus.history(ROLLOUT)]
    found = []
    async with Bulk(source, await facts_of(source), override, [str(tmp_path)]) as bulk:
        for _ in range(2):
            trajectory = await load(source, ROLLOUT)
            scored, revised = await rescore(bulk, trajectory)
            assert revised is not None, scored
            found.append((scored.was, scored.reward, await append(bus, trajectory, revised)))
    assert found == [(1, 0.25, 1), (0.25, 0.25, 2)]
    history = await bus.history(ROLLOUT)
    assert [event.raw for event in history[: len(before)]] == before
    assert [event.event.type for event in history[len(before) :]] == ["rollout.revised"] * 2
    trajectory = await load(source, ROLLOUT)
    assert isinstance(trajectory.outcome, RolloutResult)
    assert (trajectory.reward, trajectory.first_reward, trajectory.outcome.reward) == (0.25, 1, 1)
    listed = {row.rollout_id: row async for row in rows(source, await facts_of(source))}
    assert (listed[ROLLOUT].reward, listed[ROLLOUT].first_reward, listed[ROLLOUT].revisions) == (0.25, 1, 2)
    assert (listed["r1-00001-00"].reward, listed["r1-00001-00"].revisions) == (1, 0)


async def test_result_files_from_the_log_have_the_latest_reward_and_the_first(
    bus: Bus, override: dict[str, object], tmp_path: Path
) -> None:
    source = LogSource(bus, "here")
    trajectory = await load(source, ROLLOUT)
    async with Bulk(source, await facts_of(source), override, [str(tmp_path)]) as bulk:
        _, revised = await rescore(bulk, trajectory)
    assert revised is not None
    await append(bus, trajectory, revised)
    lines = {done.rollout_id: msgspec.json.decode(done.line) async for done in outcomes_in_log(bus, "r1")}
    said = [lines[ROLLOUT].get(name) for name in ("reward", "first_reward", "reward_revision")]
    assert said == [0.25, 1, 1]
    assert "first_reward" not in lines["r1-00001-00"]


async def test_r4_two_who_revise_at_once_have_a_number_each(
    bus: Bus, override: dict[str, object], tmp_path: Path
) -> None:
    """R4."""
    source = LogSource(bus, "here")
    trajectory = await load(source, ROLLOUT)
    async with Bulk(source, await facts_of(source), override, [str(tmp_path)]) as bulk:
        _, revised = await rescore(bulk, trajectory)
    assert revised is not None
    other = msgspec.structs.replace(revised, reward=0.5)
    numbers = await asyncio.gather(*(append(bus, trajectory, each) for each in (revised, other)))
    assert sorted(numbers) == [1, 2]
