"""The commands in a Python that finds something else under one of our plain names."""

import subprocess
import sys
from pathlib import Path

import pytest

from contracts.shadowing import PACKAGES, check_packages


def run(program: str, folder: Path) -> tuple[int, str]:
    """Exit code and standard error of a command; Python finds first what is in `folder`."""
    code = f"import sys; from {program}.cli import main; sys.path.insert(0, {str(folder)!r}); sys.exit(main())"
    ran = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=False)
    return ran.returncode, ran.stderr


def test_our_own_packages_are_found() -> None:
    check_packages()


@pytest.mark.parametrize("program", ["orchestrator", "replay"])
@pytest.mark.parametrize(("name", "file"), [("contracts", "contracts/__init__.py"), ("bus", "bus.py")])
def test_what_stands_before_one_of_ours_is_named_in_one_line(
    tmp_path: Path, program: str, name: str, file: str
) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text("")
    code, said = run(program, tmp_path)
    assert code == 2
    assert said.startswith(f"error: JetGym's package {name!r} is ")
    assert f"Python finds {path}: rename that" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("program", ["orchestrator", "replay"])
def test_a_folder_of_that_name_without_code_shadows_nothing(tmp_path: Path, program: str) -> None:
    for name in PACKAGES:
        (tmp_path / name).mkdir()
    assert run(program, tmp_path) == (0, "")
