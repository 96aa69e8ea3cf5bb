"""Whether the packages under our plain names are ours, in a Python with something before them on its path."""

import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.shadowing import PACKAGES, check_packages


def check_with(folder: Path) -> str:
    code = (
        "import sys; from orchestrator.shadowing import check_packages, ShadowedPackage\n"
        f"sys.path.insert(0, {str(folder)!r})\n"
        "for name in [n for n in sys.modules if n.partition('.')[0] == 'bus']: del sys.modules[name]\n"
        "try: check_packages()\n"
        "except ShadowedPackage as error: print(error)\n"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_our_own_packages_are_found() -> None:
    check_packages()


@pytest.mark.parametrize("name", ["bus.py", "bus/__init__.py"])
def test_what_stands_before_one_of_ours_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("")
    said = check_with(tmp_path)
    assert said.startswith("JetGym's package 'bus' is ")
    assert f"Python finds {tmp_path / name}: rename that" in said


def test_a_folder_of_that_name_without_code_shadows_nothing(tmp_path: Path) -> None:
    for name in PACKAGES:
        (tmp_path / name).mkdir()
    assert check_with(tmp_path) == ""
