"""Who remembers: trajectories read from logs and files, shown, and executed again.

The public names are loaded when they are first used, so that the command line answers quickly and the process in an
agent's venv loads nothing that is not there.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from replay.errors import ReplayError
    from replay.facts import Facts, facts_of
    from replay.opening import Where, open_source
    from replay.rows import Row
    from replay.source import Source, load
    from replay.trajectory import Trajectory
    from replay.verify import Verdict, Verifier

__all__ = [
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

_PLACES: Final = {
    "Facts": "facts",
    "ReplayError": "errors",
    "Row": "rows",
    "Source": "source",
    "Trajectory": "trajectory",
    "Verdict": "verify",
    "Verifier": "verify",
    "Where": "opening",
    "facts_of": "facts",
    "load": "source",
    "open_source": "opening",
}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(import_module(f"replay.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'replay' has no attribute {name!r}")
