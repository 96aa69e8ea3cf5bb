"""docs/reliability.md: every test that it names is there, and every statement of the list has a row."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reliability.md").read_text()
NAMED = sorted(set(re.findall(r"`((?:tests|components)/[^`]*::[^`]*)`", PAGE)))
STATEMENTS = {"B": 13, "E": 14}
"""How many of each letter there are."""


@pytest.mark.parametrize("named", NAMED)
def test_every_test_that_the_page_names_is_there(named: str) -> None:
    path, _, name = named.partition("::")
    tree = ast.parse((ROOT / path).read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_statement_has_a_row_that_says_what_holds_it() -> None:
    rows = re.findall(r"^\| (?:([BE]\d+) )?\| (?!statement)[^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE)
    numbers = [number for number, _ in rows if number]
    assert numbers == [f"{letter}{number}" for letter, count in STATEMENTS.items() for number in range(1, count + 1)]
    assert all("::" in held or held.startswith("not") for _, held in rows)


def test_every_script_that_the_page_names_is_there() -> None:
    for path in re.findall(r"`(benchmarks/[^`]*)`", PAGE):
        assert (ROOT / path).exists()
