"""The datasets in the repository: YAML and JSONL only, each with a card that tells the truth."""

from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from components.loading import load
from components.resources import Resources
from components.resources.plan import Method
from orchestrator.tasks import TaskLine, read_tasks

_ROOT: Final = Path(__file__).parents[2]
_FOLDERS: Final = sorted(path for path in (_ROOT / "datasets").iterdir() if path.is_dir())
_COMPONENTS: Final = sorted(path.parent for path in (_ROOT / "components" / "resources").glob("*/app.py"))


def _yaml(path: Path) -> dict[str, Any]:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def test_there_is_nothing_but_yaml_and_jsonl() -> None:
    assert {path.suffix for path in (_ROOT / "datasets").rglob("*") if path.is_file()} <= {".yaml", ".jsonl"}


@pytest.mark.parametrize("folder", _FOLDERS, ids=lambda path: path.name)
def test_a_card_says_what_is_there_and_where_it_comes_from(folder: Path) -> None:
    card = _yaml(folder / "card.yaml")
    assert card["name"] == folder.name
    assert card["license"] == "Apache-2.0"
    assert card["description"]
    assert card["origin"]
    assert card["files"] == {path.name: len(list(read_tasks(path))) for path in folder.glob("*.jsonl")}
    assert card["files"]["example.jsonl"] == 5


@pytest.mark.parametrize("folder", _FOLDERS, ids=lambda path: path.name)
def test_every_line_is_a_task_with_the_fields_of_its_card_and_fits_its_environment(folder: Path) -> None:
    card = _yaml(folder / "card.yaml")
    component = load("resources", card["resources"])
    assert issubclass(component, Resources)
    for path in folder.glob("*.jsonl"):
        for line in read_tasks(path):
            assert isinstance(line, TaskLine)
            assert set(line.fields) - {"responses_create_params"} == set(card["fields"])
            for method in (component.jetgym_plan.seed, component.jetgym_plan.verify):
                if isinstance(method, Method):
                    method.task_type.model_validate_json(msgspec.json.encode(line.fields))


@pytest.mark.parametrize("folder", _COMPONENTS, ids=lambda path: path.name)
def test_every_environment_has_its_files_and_a_config_that_wires_an_agent_to_its_dataset(folder: Path) -> None:
    assert {"app.py", "config.yaml", "requirements.txt", "README.md", "tests"} <= {
        path.name for path in folder.iterdir()
    }
    instances = _yaml(folder / "config.yaml")
    (name,) = (key for key, instance in instances.items() if "resources" in instance)
    (agent,) = (instance["agents"]["simple_agent"] for instance in instances.values() if "agents" in instance)
    assert instances[name]["resources"] == {folder.name: {}}
    assert (agent["model"], agent["resources"]) == ("policy", name)
    assert all((_ROOT / dataset["path"]).is_file() for dataset in agent["datasets"])
