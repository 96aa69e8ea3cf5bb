"""The environment of docs/environments.md is what the page says: short, tested, loadable, with a dataset that fits."""

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from components.loading import add_roots, load
from components.resources import Resources
from components.resources.trial import Trial
from orchestrator.commands.new import TEMPLATES

_PAGE: Final = Path(__file__).parents[3] / "docs" / "environments.md"
_BLOCKS: Final[list[tuple[str, str]]] = re.findall(
    r"^```(\w+)\n(.*?)^```$", _PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)


def _block(language: str, number: int = 0) -> str:
    return [text for name, text in _BLOCKS if name == language][number]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's project with the page's component, importable for one test."""
    component = tmp_path / "components" / "resources" / "pantry"
    component.mkdir(parents=True)
    (component / "app.py").write_text(_block("python"), encoding="utf-8")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for kind in ("agents", "models", "resources"):
        package = importlib.import_module(f"components.{kind}")
        monkeypatch.setattr(package, "__path__", list(package.__path__))
    add_roots([tmp_path])
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("components.resources.pantry")]:
        del sys.modules[name]


def test_the_environment_takes_about_thirty_lines() -> None:
    assert sum(1 for line in _block("python").splitlines() if line.strip()) <= 30


def test_the_environment_is_found_and_offers_its_two_tools(root: Path) -> None:
    component = load("resources", "pantry")
    assert issubclass(component, Resources)
    assert component.describe().stateful
    assert [entry["name"] for entry in component.describe().tools] == ["put", "take"]


def test_the_pages_tests_pass(root: Path) -> None:
    scope: dict[str, Any] = {}
    exec(compile(_block("python", 1), str(_PAGE), "exec"), scope)
    tests = [entry for name, entry in scope.items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test()


def test_the_pages_files_written_by_hand_are_tested_by_the_pages_command(tmp_path: Path) -> None:
    """In a directory of a user's own, by a pytest that takes warnings for what they are: nothing stands above it."""
    tests = tmp_path / "components" / "resources" / "pantry" / "tests"
    tests.mkdir(parents=True)
    (tests.parent / "app.py").write_text(_block("python"), encoding="utf-8")
    (tests / "test_pantry.py").write_text(_block("python", 1), encoding="utf-8")
    (tests / "conftest.py").write_text(_block("python", 2), encoding="utf-8")
    _, command = _block("sh", 1).splitlines()
    words = [sys.executable, *command.split()[1:]]
    ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    assert "2 passed" in ran.stdout
    assert "Warning" not in ran.stdout


def test_the_pages_conftest_is_the_one_that_new_writes() -> None:
    assert _block("python", 2) == (TEMPLATES / "conftest.py.txt").read_text(encoding="utf-8")


async def test_the_pages_tasks_fit_the_environment(root: Path) -> None:
    lines = _block("json").splitlines()
    first, second = (Trial(load("resources", "pantry")(), line) for line in lines)
    await first.call("put", item="apple", count=3)
    await second.call("take", item="egg", count=2)
    assert ((await first.verify()).reward, (await second.verify()).reward) == (1.0, 1.0)


def test_the_pages_config_has_the_form_of_the_components_own() -> None:
    config = yaml.safe_load(_block("yaml"))
    own = yaml.safe_load((_PAGE.parents[1] / "components/resources/mcqa/config.yaml").read_text(encoding="utf-8"))
    assert _shape(config) == _shape(own)


def _shape(config: dict[str, Any]) -> list[list[str]]:
    agent = next(entry["agents"]["simple_agent"] for entry in config.values() if "agents" in entry)
    return [[kind for entry in config.values() for kind in entry], list(agent), list(agent["datasets"][0])]


async def test_a_reward_of_several_components_is_as_the_page_says() -> None:
    scope: dict[str, Any] = {}
    exec(compile(_block("python", 3), str(_PAGE), "exec"), scope)
    essay = scope["Essay"]()
    trial = Trial(essay, {})
    trial.say("A short one.")
    verdict = await trial.verify()
    assert verdict.reward == pytest.approx(0.515)
    assert msgspec.json.decode(verdict.extra["words"]) == 3
    assert essay.aggregate_metrics([{"words": 3}, {"words": 9}]) == {"longest": 9}


async def test_the_dice_of_the_page_come_back_as_they_were_rolled() -> None:
    scope: dict[str, Any] = {}
    exec(compile(_block("python", 4), str(_PAGE), "exec"), scope)
    trial = Trial(scope["Dice"](), {})
    rolled = []
    for _ in range(20):
        rolled.append(int(await trial.call("roll")))
        await trial.rebuild()
    assert (await trial.verify()).reward == sum(rolled)
