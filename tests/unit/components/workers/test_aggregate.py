"""A component's own metrics, over the lines of the agents that use it."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from components.workers.aggregate import Aggregated, AggregateRequest, aggregate

COMPONENT = """
from components.resources import Resources


class Counting(Resources):
    def verify(self) -> float:
        return 1.0

    def aggregate_metrics(self, lines: list[dict[str, object]]) -> dict[str, object]:
        if not lines:
            raise ZeroDivisionError("nothing to count")
        return {"lines": len(lines), "agents": sorted({str(line["agent"]) for line in lines})}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A user's folder with a component, and a run's lines."""
    folder = tmp_path / "components" / "resources" / f"counting_{tmp_path.name.replace('-', '_')}"
    folder.mkdir(parents=True)
    (folder / "app.py").write_text(COMPONENT)
    lines = [{"agent": agent, "reward": 1.0} for agent in ("a", "b", "a", "c")]
    (tmp_path / "rollouts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def request(root: Path, *agents: str, implementation: str = "") -> AggregateRequest:
    return AggregateRequest(
        implementation=implementation or next((root / "components" / "resources").iterdir()).name,
        config={},
        path=str(root / "rollouts.jsonl"),
        agents=agents,
        roots=(str(root),),
    )


def test_only_the_lines_of_its_agents_count(root: Path) -> None:
    assert aggregate(request(root, "a", "c")) == Aggregated(metrics={"lines": 3, "agents": ["a", "c"]})


def test_what_the_component_raises_is_said_and_nothing_else_is_lost(root: Path) -> None:
    found = aggregate(request(root, "nobody"))
    assert found.metrics == {}
    assert "ZeroDivisionError: nothing to count" in found.error


def test_a_component_without_metrics_has_none(root: Path) -> None:
    assert aggregate(request(root, "a", implementation="mcqa")) == Aggregated()


def test_the_process_says_the_same(root: Path) -> None:
    asked = request(root, "a")
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "components.workers.aggregate"],
        input=msgspec.json.encode(asked),
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert msgspec.json.decode(ran.stdout, type=Aggregated) == aggregate(asked)
