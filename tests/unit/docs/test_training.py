"""docs/training.md: its table names tests that are there, its loop is short, its arguments are those of the code."""

import inspect
import re
from pathlib import Path

from orchestrator import Trainer
from orchestrator.trainer_options import Options
from tests.unit.docs.test_reliability import test_every_test_that_the_page_names_is_there as is_there

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "training.md").read_text()


def test_every_statement_has_a_row_and_every_test_that_it_names_is_there() -> None:
    rows = re.findall(r"^\| (F\d+) \| [^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE)
    assert [number for number, _ in rows] == [f"F{number}" for number in range(1, 10)]
    assert all("::" in held or held.startswith("not") for _, held in rows)
    for named in re.findall(r"`(tests/[^`]*::[^`]*)`", PAGE):
        is_there(named)


def test_the_loop_is_at_most_40_lines() -> None:
    (loop,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert len([line for line in loop.splitlines() if line.strip()]) <= 40


def test_the_tables_have_the_arguments_of_feed_and_of_connect() -> None:
    first, second = re.findall(r"^\| argument of .*?\n\n", PAGE, re.DOTALL | re.MULTILINE)
    said = [set(re.findall(r"^\| `(\w+)", table, re.MULTILINE)) for table in (first, second)]
    assert said[0] == set(inspect.signature(Trainer.feed).parameters) - {"self"}
    assert said[1] == {*Options.__annotations__, "run", "namespace"}
