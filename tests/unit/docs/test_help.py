"""What the help of the commands tells a reader to type or open is there, and stands on lines that are whole."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import orchestrator.cli
import replay.cli

ROOT = Path(__file__).parents[3]
WIDTH = 80
MADE_BY_THE_READER = re.compile(r"^results/|^\.jetgym/|[A-Z]{3}|<")
"""What a run writes, and placeholders. A name without a slash is a file of the reader's own."""


def commands() -> Iterator[tuple[str, Any]]:
    for name, program in (("jetgym", orchestrator.cli), ("replay", replay.cli)):
        yield from below(name, typer.main.get_command(program.build()))


def below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield name, command
    for sub, found in getattr(command, "commands", {}).items():
        yield from below(f"{name} {sub}", found)


COMMANDS = [pytest.param(name, command, id=name) for name, command in commands()]


def paths(text: str) -> list[str]:
    """The words with a slash in them that are no URLs."""
    words = re.split(r"[\s`'\"()\[\],;:=]+", re.sub(r"\w+://\S+", "", text))
    return [word.rstrip(".") for word in words if "/" in word and not MADE_BY_THE_READER.search(word)]


@pytest.mark.parametrize(("name", "command"), COMMANDS)
def test_every_path_in_the_help_is_in_the_repository(name: str, command: Any) -> None:
    texts = [command.help, *(getattr(parameter, "help", None) for parameter in command.params)]
    for path in paths("\n".join(filter(None, texts))):
        assert (ROOT / path).exists(), f"{name} --help names {path}"


@pytest.mark.parametrize(("name", "command"), COMMANDS)
def test_a_line_of_an_example_fits_a_terminal_of_80_columns(name: str, command: Any) -> None:
    """The help stands between two margins of a column."""
    _, _, example = (command.help or "").partition("\b\n")
    for line in example.partition("\n\n")[0].splitlines():
        assert len(line) <= WIDTH - 2, f"{name} --help breaks {line!r}"


def test_a_path_is_a_word_with_a_slash_that_a_reader_does_not_choose() -> None:
    text = "run `configs/demo.yaml`, at nats://10.0.0.1/x with tasks.jsonl: see results/first, docs/NAME or a/b. And c/"
    assert paths(text) == ["configs/demo.yaml", "a/b", "c/"]
