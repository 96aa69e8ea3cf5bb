"""How is a command, or a count, written for a person?

Called by the commands and the report, wherever they name a next step.
"""

import shlex
import shutil
import sys
from pathlib import Path


def typed(program: str, *words: str) -> str:
    """One of our commands as it can be typed here: by its name where PATH leads to it, else by its path."""
    ours = Path(sys.executable).parent / program
    found = shutil.which(program)
    if ours.exists() and (found is None or not ours.samefile(found)):
        program = str(ours.relative_to(Path.cwd()) if ours.is_relative_to(Path.cwd()) else ours)
    return shlex.join([program, *words])


def counted(count: int, noun: str) -> str:
    """`1 line`, `2 lines`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
