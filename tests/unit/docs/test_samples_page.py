"""docs/samples.md: its table names tests that are there, its fields and kinds are those of the code."""

import re
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import get_args

from contracts.breaks import BreakKind
from contracts.samples import Sample
from tests.unit.docs.test_reliability import test_every_test_that_the_page_names_is_there as is_there

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "samples.md").read_text()


def table(heading: str) -> list[list[str]]:
    """The cells of a table's rows."""
    (found,) = re.findall(rf"^\| {re.escape(heading)} .*?\n\n", PAGE + "\n", re.DOTALL | re.MULTILINE)
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in found.strip().splitlines()[2:]]


def test_every_statement_has_a_row_and_every_test_that_it_names_is_there() -> None:
    rows = re.findall(r"^\| (T\d+) \| [^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE)
    assert [number for number, _ in rows] == [f"T{number}" for number in range(1, 19)]
    assert all("::" in held for _, held in rows)
    for named in re.findall(r"`(tests/[^`]*::[^`]*)`", PAGE):
        is_there(named)


def test_the_fields_of_a_sample_and_the_kinds_of_breaks_are_those_of_the_code() -> None:
    told = {name for row in table("field of `Sample`") for name in re.findall(r"`(\w+)`", row[0])}
    assert told == {field.name for field in fields(Sample)}
    assert {row[0].strip("`") for row in table("kind")} == set(get_args(BreakKind))


def test_each_adapter_that_the_page_names_is_there() -> None:
    calls = [re.match(r"`(\w+)\.(\w+)", row[1]) for row in table("trainer")]
    for found in calls:
        assert found is not None
        assert hasattr(import_module(f"orchestrator.adapters.{found[1]}"), found[2])
    modules = {path.stem for path in (ROOT / "orchestrator" / "adapters").glob("*.py")} - {"__init__", "trained"}
    assert {found[1] for found in calls if found is not None} == modules
