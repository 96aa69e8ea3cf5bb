"""How is a command, or a count, written for a person?

Called by the commands and the report, wherever they name a next step.
"""

import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from components.loading import INSTALLED

_KILO: Final = 1024
_EXACT_S: Final = 10.0


def typed(program: str, *words: str) -> str:
    """One of our commands as it can be typed here: by its name where PATH leads to it, else by its path."""
    ours = Path(sys.executable).parent / program
    found = shutil.which(program)
    if ours.exists() and (found is None or not _is_same(Path(found), ours)):
        program = str(ours.relative_to(Path.cwd()) if ours.is_relative_to(Path.cwd()) else ours)
    return shlex.join([program, *words])


def _is_same(found: Path, ours: Path) -> bool:
    """A venv's python is a link to one outside, which does not have what is installed in the venv."""
    return found.parent.samefile(ours.parent) or (not ours.is_symlink() and found.samefile(ours))


def to_install_pytest() -> str | None:
    """The command that installs what tests of components need; None where it is here already.

    In JetGym's checkout that is what its settings for pytest name, too.
    """
    inside = Path.cwd().resolve().is_relative_to(INSTALLED.resolve())
    needed = ["pytest", *(["pytest-asyncio", "pytest-timeout"] if inside else [])]
    missing = [package for package in needed if find_spec(package.replace("-", "_")) is None]
    if not missing:
        return None
    if find_spec("pip") is not None:
        return typed("python", "-m", "pip", "install", *missing)
    return typed("uv", "pip", "install", "--python", sys.executable, *missing)


def counted(count: int, noun: str) -> str:
    """`1 line`, `2 lines`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def amount(size: int) -> str:
    """`812 B`, `1.4 MB`, `20.0 GB`, in powers of 1,024."""
    value, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < _KILO:
            break
        value, unit = value / _KILO, larger
    return f"{size:,} B" if unit == "B" else f"{value:.1f} {unit}"


def span(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min`, `5 h`, `2 days`: as exact as a person needs it."""
    for unit, length in (("days", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < _EXACT_S else f"{seconds:.0f} s"
