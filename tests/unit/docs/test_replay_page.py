"""docs/replay.md: its table names tests that are there; every verb has `--json`."""

import re
from pathlib import Path

import pytest
import typer

from replay.cli import COMMANDS, build
from tests.unit.docs.test_reliability import test_every_test_that_the_page_names_is_there as is_there

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "replay.md").read_text()
COMPARING = {"verify", "diff", "whatif", "fork", "reverify", "retool"}


def test_every_statement_has_a_row_and_every_test_that_it_names_is_there() -> None:
    rows = re.findall(r"^\| (R\d+) \| [^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE)
    assert [number for number, _ in rows] == [f"R{number}" for number in range(1, 8)]
    assert all("::" in held for _, held in rows)
    for named in re.findall(r"`(tests/[^`]*::[^`]*)`", PAGE):
        is_there(named)


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_verb_has_json_and_says_its_exit_codes(verb: str) -> None:
    """R7."""
    command = typer.main.get_command(build([verb]))
    command = getattr(command, "commands", {}).get(verb, command)
    options = {name for parameter in command.params for name in parameter.opts}
    assert "--json" in options or verb in {"export", "import"}
    if verb in COMPARING:
        assert re.search(r"Ends with 0 if .*?, 1 if .*?, 2 if ", " ".join((command.help or "").split()))
