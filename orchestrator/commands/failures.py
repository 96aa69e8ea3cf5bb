"""How is an error told on the command line?

Errors that a user can mend are one clear line each on standard error; everything else is a fault of ours and keeps
its traceback. Called by `cli` alone.
"""

import errno
import sys
from typing import Final

from rich.console import Console

from bus import BusError
from components.errors import ComponentError
from contracts.errors import ContractError
from orchestrator.config import redact
from orchestrator.errors import ConfigError, InputError, OrchestratorError

_DISK: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)

errors = Console(stderr=True, highlight=False)


def cause_of(error: Exception) -> Exception:
    """The first of those that came together."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def is_of_the_disk(error: Exception) -> bool:
    """Whether something could not be written: nothing is wrong with it, and there may be room later."""
    return isinstance(error, OSError) and error.errno in _DISK


def tell(error: Exception) -> bool:
    """Prints an error that a user can mend; False for any other."""
    error = cause_of(error)
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    elif isinstance(error, OSError) and is_of_the_disk(error):
        text = str(error.strerror)
    elif isinstance(error, OrchestratorError | BusError | ContractError | ComponentError):
        text = str(error)
    else:
        return False
    if isinstance(error, InputError):
        for problem in error.problems:
            errors.print(str(problem), markup=False, soft_wrap=True)
        if error.total > len(error.problems):
            errors.print(f"… and {error.total - len(error.problems)} more", markup=False)
    if isinstance(error, ConfigError):
        text = text.replace("\n", "\nerror: ")
    sys.stderr.write(f"error: {redact(text)}\n")
    return True
