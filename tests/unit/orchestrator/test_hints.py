"""A command that we name can be typed as it stands."""

import subprocess
import sys
from pathlib import Path

import pytest

from components.loading import INSTALLED
from orchestrator import hints
from orchestrator.hints import amount, counted, span, to_install_pytest, typed

OURS = Path(sys.executable).parent


def test_a_program_that_path_leads_to_is_named_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{OURS}:/bin")
    assert typed("replay", "show", "two words") == "replay show 'two words'"


def test_a_program_that_is_not_on_the_path_is_named_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.chdir(OURS.parent)
    assert typed("replay", "list") == f"{OURS.name}/replay list"
    monkeypatch.chdir("/")
    words = typed("replay", "--help").split()
    subprocess.run(words, check=True, capture_output=True, timeout=60)


def test_a_python_outside_of_the_venv_is_not_the_venvs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A venv's python is a link to it, but what is installed in the venv is not there."""
    (tmp_path / "python").symlink_to((OURS / "python").resolve())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir("/")
    assert typed("python", "-m", "pytest") == f"{OURS}/python -m pytest".removeprefix("/")
    monkeypatch.setenv("PATH", str(OURS))
    assert typed("python", "-m", "pytest") == "python -m pytest"


def test_how_to_install_pytest_is_told_where_it_is_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In JetGym's checkout with the plugins that its settings name: without them pytest ends at once."""
    monkeypatch.setenv("PATH", str(OURS))
    monkeypatch.chdir(tmp_path)
    assert to_install_pytest() is None
    there = {"pip"}
    monkeypatch.setattr(hints, "find_spec", lambda name: name if name in there else None)
    assert to_install_pytest() == "python -m pip install pytest"
    monkeypatch.chdir(INSTALLED)
    assert to_install_pytest() == "python -m pip install pytest pytest-asyncio pytest-timeout"
    there.add("pytest")
    assert to_install_pytest() == "python -m pip install pytest-asyncio pytest-timeout"
    there.clear()
    monkeypatch.chdir(tmp_path)
    assert to_install_pytest() == f"uv pip install --python {sys.executable} pytest"


def test_one_is_no_plural() -> None:
    assert [counted(number, "line") for number in (0, 1, 2000)] == ["0 lines", "1 line", "2,000 lines"]


@pytest.mark.parametrize(("size", "told"), [(812, "812 B"), (1_500_000, "1.4 MB"), (3 * 1024**5, "3072.0 TB")])
def test_an_amount_of_bytes_is_short(size: int, told: str) -> None:
    assert amount(size) == told


@pytest.mark.parametrize(("seconds", "told"), [(0.42, "0.4 s"), (12.3, "12 s"), (200, "3 min"), (2 * 86400, "2 days")])
def test_a_time_is_as_exact_as_a_person_needs_it(seconds: float, told: str) -> None:
    assert span(seconds) == told
