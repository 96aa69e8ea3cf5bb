"""How is an error told on the command line?

Errors that a user can mend are one clear line each on standard error; everything else is a fault of ours and keeps
its traceback. Called by `cli` alone.
"""

import sys

from rich.console import Console

from bus import BusError
from components.errors import ComponentError
from contracts.errors import ContractError
from orchestrator.config import redact
from orchestrator.errors import ConfigError, InputError, OrchestratorError

errors = Console(stderr=True, highlight=False)


def tell(error: Exception) -> bool:
    """Prints an error that a user can mend; False for any other."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
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
