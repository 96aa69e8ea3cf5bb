"""Histories that real workers recorded some day must read and verify as they did; see scripts/record_golden.py."""

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

import components.agents
from components.loading import add_roots
from replay.facts import facts_of
from replay.file_source import FileSource
from replay.header import draw_header
from replay.rows import rows
from replay.source import load
from replay.story import Story
from replay.timeline import timeline, walk
from replay.verify import Verifier
from tests.unit.replay.examples import GOLDEN

HISTORIES = sorted(path.stem for path in GOLDEN.glob("*.jsonl"))
PROJECT = GOLDEN / "project"


@pytest.fixture(autouse=True)
def project(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The agents that the histories were recorded with."""
    monkeypatch.setattr(components.agents, "__path__", list(components.agents.__path__))
    add_roots([PROJECT])
    yield
    for name in [name for name in sys.modules if name.startswith("components.agents.")]:
        if str(PROJECT) in str(getattr(sys.modules[name], "__path__", getattr(sys.modules[name], "__file__", ""))):
            del sys.modules[name]


def test_each_agent_of_the_project_has_a_history() -> None:
    assert HISTORIES == ["clumsy", "delegating", "impatient", "solver"]


@pytest.mark.parametrize("name", HISTORIES)
async def test_todays_code_does_what_is_recorded(name: str) -> None:
    source = FileSource([GOLDEN / f"{name}.jsonl"])
    facts = await facts_of(source)
    (row,) = [row async for row in rows(source, facts)]
    trajectory = await load(source, row.rollout_id)
    verdict = Verifier(facts).verify(trajectory)
    assert (verdict.verdict, verdict.departure) == ("same", None)
    assert verdict.calls == len(trajectory.calls) > 1
    assert (verdict.ended, verdict.reward) == {
        "clumsy": ("failed", None),
        "delegating": ("completed", 1.0),
        "impatient": ("completed", 0.0),
        "solver": ("completed", 1.0),
    }[name]


@pytest.mark.parametrize("name", HISTORIES)
async def test_its_story_tells_every_call(name: str) -> None:
    source = FileSource([GOLDEN / f"{name}.jsonl"])
    facts = await facts_of(source)
    (row,) = [row async for row in rows(source, facts)]
    trajectory = await load(source, row.rollout_id)
    output = io.StringIO()
    draw_header(trajectory, facts, Console(file=output, width=100))
    Story(trajectory, Console(file=output, width=100)).draw()
    for key in trajectory.calls:
        assert f" {key}" in output.getvalue()
    assert [step.call for step in walk(timeline(trajectory)) if step.call] != []


def test_no_history_names_the_machine_that_recorded_it() -> None:
    for path in GOLDEN.glob("*.jsonl"):
        for absolute in (b'"/', b'\\"/', b"/home/", b"/tmp/", b"/Users/"):
            assert absolute not in path.read_bytes(), path


def test_the_project_is_where_the_script_looks_for_it() -> None:
    assert Path(PROJECT, "config.yaml").is_file()
