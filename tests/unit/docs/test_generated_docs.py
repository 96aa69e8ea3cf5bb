"""The schemas and the AsyncAPI document say what the code says."""

import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "generate_docs.py"))
FILES: dict[Path, str] = SCRIPT["files"]()


@pytest.mark.parametrize("path", FILES, ids=str)
def test_a_generated_file_is_what_make_docs_would_write(path: Path) -> None:
    assert (ROOT / "docs" / path).read_text() == FILES[path], "run `make docs`"


def test_no_schema_is_left_of_a_type_that_is_gone() -> None:
    there = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs" / "schemas").iterdir()}
    assert there == {path for path in FILES if path.parent.name == "schemas"}


def references(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(found := node.get("$ref"), str):
            yield found
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def test_every_reference_of_the_asyncapi_document_leads_somewhere() -> None:
    document: dict[str, Any] = yaml.safe_load(FILES[Path("asyncapi.yaml")])
    for reference in references(document):
        file, _, place = reference.partition("#")
        target: Any = json.loads(FILES[Path(file)]) if file else document
        for step in filter(None, place.split("/")):
            target = target[step]
        assert isinstance(target, dict)


def test_every_event_type_that_the_code_writes_is_in_the_asyncapi_document() -> None:
    """An event type is a literal `<word>.<word>` passed as `type=`, or built from a call type and an outcome."""
    described = set(yaml.safe_load(FILES[Path("asyncapi.yaml")])["components"]["messages"])
    written = set()
    for package in ("bus", "components", "orchestrator"):
        for path in (ROOT / package).rglob("*.py"):
            written |= set(re.findall(r'type="([a-z]+\.[a-z]+)"', path.read_text()))
            written |= set(re.findall(r'"([a-z]+\.(?:requested|replied|failed|completed|lettered))"', path.read_text()))
    assert written >= {"rollout.requested", "rollout.adopted", "dead.lettered"}
    assert written <= described
