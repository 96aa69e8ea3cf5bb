"""What is said of a configured component without starting it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from components.workers.describe import DescribeRequest, describe
from contracts.deployments import ConfigProblem, Description, Reference
from contracts.events import Kind

NAMES: dict[str, Any] = {"model": "policy", "resources": "counter"}


def described(kind: Kind, implementation: str, roots: tuple[str, ...] = (), **config: Any) -> Description:
    return describe(DescribeRequest(kind=kind, implementation=implementation, config=config, roots=roots))


def problems(kind: Kind, implementation: str, **config: Any) -> list[tuple[str, str]]:
    found = described(kind, implementation, **config).problems
    return [(problem.path, problem.message) for problem in found]


def test_an_agents_description_has_its_defaults_and_its_references() -> None:
    found = described("agents", "simple_agent", **NAMES, max_turns=3)
    assert found.references == (
        Reference(path="model", kind="models", name="policy"),
        Reference(path="resources", kind="resources", name="counter"),
    )
    assert (found.config["max_turns"], found.config["max_repeats"], found.replay) == (3, 5, "execute")
    assert "max_reasoning_turns" in found.keys
    assert len(found.digest) == 64
    assert found.problems == ()


def test_a_resources_description_has_its_tools_and_says_whether_it_keeps_a_session() -> None:
    counter = described("resources", "example_session_state_mgmt")
    assert [tool["name"] for tool in counter.tools] == ["increment_counter", "get_counter_value"]
    assert counter.stateful
    assert not described("resources", "mcqa").stateful


def test_a_models_description_has_its_config() -> None:
    found = described("models", "scripted_model", turns=[{"text": "yes"}])
    assert found.config["turns"][0]["text"] == "yes"
    assert found.config["pool"] == {"workers": 1, "concurrency": 1024, "slots": 1, "memory_mb": None}


def test_unknown_keys_name_the_nearest_right_one_at_their_place() -> None:
    assert problems("agents", "simple_agent", **NAMES, max_turn=3) == [
        ("max_turn", "unknown key; did you mean 'max_turns'?")
    ]
    assert problems("agents", "simple_agent", **NAMES, pool={"worker": 2}) == [
        ("pool.worker", "unknown key; did you mean 'workers'?")
    ]
    ((path, message),) = problems("models", "scripted_model", latency={"zzz": 2})
    assert (path, message) == ("latency.zzz", "unknown key; it takes: distribution, mean_s, spread")


def test_wrong_values_are_told_all_at_once() -> None:
    found = problems("agents", "simple_agent", **NAMES, max_turns=0, deadline_s="soon")
    assert [path for path, _ in found] == ["deadline_s", "max_turns"]


def test_an_implementation_that_is_not_there_is_a_problem_not_an_error() -> None:
    ((path, message),) = problems("models", "scripted_modle")
    assert path == ""
    assert message.startswith("there is no models implementation 'scripted_modle'; there are: ")


def test_components_that_break_the_authors_rules_are_told(tmp_path: Path) -> None:
    folder = tmp_path / "components" / "resources" / "lacking"
    folder.mkdir(parents=True)
    (folder / "app.py").write_text(
        "from components.resources import Resources\n\n\nclass Lacking(Resources):\n    pass\n"
    )
    (problem,) = described("resources", "lacking", roots=(str(tmp_path),)).problems
    assert problem == ConfigProblem(path="", message=problem.message)
    assert "needs a `verify`" in problem.message


@pytest.mark.parametrize("config", [{}, {"nonsense": 1}])
def test_the_process_says_the_same(config: dict[str, Any]) -> None:
    request = DescribeRequest(kind="resources", implementation="mcqa", config=config)
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "components.workers.describe"],
        input=msgspec.json.encode(request),
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert msgspec.json.decode(ran.stdout, type=Description) == describe(request)
