"""What `jetgym new` writes passes ruff, in a directory of a user's own and in JetGym's checkout."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from components.loading import INSTALLED
from orchestrator.cli import main
from orchestrator.commands import new

OURS = ["--config", str(INSTALLED / "pyproject.toml")]


def make(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a component of each kind in the working directory."""
    for kind in ("agent", "model", "resources"):
        monkeypatch.setattr(sys, "argv", ["jetgym", "new", kind, f"{name}_{kind}"])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0


def ruff(folder: Path, name: str, *arguments: str) -> None:
    made = [str(path) for path in folder.glob(f"components/*/{name}_*")]
    assert len(made) == 3
    command = [sys.executable, "-m", "ruff", *arguments, "--no-cache", *made]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["a", "second_thought"])
@pytest.mark.parametrize("given", [OURS, ["--isolated"]], ids=["JetGym's settings", "ruff's own settings"])
def test_components_of_a_user_are_formatted_and_their_imports_sorted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    make(name, monkeypatch)
    ruff(tmp_path, name, "check", *given, "--extend-select=I")
    ruff(tmp_path, name, "format", "--check", *given)


@pytest.mark.parametrize("name", ["a", "zoo"])
def test_components_of_jetgyms_own_are_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """There JetGym's packages are the project's own, so that other imports are sorted among them."""
    for package in ("components", "contracts"):
        shutil.copytree(INSTALLED / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(new, "INSTALLED", tmp_path)
    monkeypatch.chdir(tmp_path)
    make(name, monkeypatch)
    shutil.copy(INSTALLED / "pyproject.toml", tmp_path)
    ruff(tmp_path, name, "check")
    ruff(tmp_path, name, "format", "--check")


def test_what_is_to_be_typed_next_is_told_with_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    make("one", monkeypatch)
    assert "First:" not in capsys.readouterr().out
    monkeypatch.setattr(new, "to_install_pytest", lambda: "python -m pip install pytest")
    make("two", monkeypatch)
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "First:   python -m pip install pytest",
        "Try it:  python -m pytest components/resources/two_resources",
        "Read:    components/resources/two_resources/README.md",
    ]
