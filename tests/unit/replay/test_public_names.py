"""What others may import from the package itself."""

import subprocess
import sys

import replay

NAMES = [
    "Facts",
    "ReplayError",
    "Row",
    "Source",
    "Trajectory",
    "Verdict",
    "Verifier",
    "Where",
    "facts_of",
    "load",
    "open_source",
]


def test_the_public_names_are_these_and_each_is_there() -> None:
    assert replay.__all__ == NAMES
    assert all(getattr(replay, name).__name__ == name for name in NAMES)


def test_what_runs_in_an_agents_venv_needs_nothing_of_the_command_line() -> None:
    code = "import sys; sys.modules.update(rich=None, typer=None, yaml=None); import replay.isolated"
    subprocess.run([sys.executable, "-c", code], check=True)
