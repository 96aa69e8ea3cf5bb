"""The errors of replay, drawn here and raised by every module of the package.

ReplayError
├── Misused            options contradict each other, or something is not named
├── NoSource           there is no log or file to read, or it cannot be read
├── NoRoom             what a long rollout says could not be kept beside the command's memory
├── UnknownName        no rollout or run has this name; `candidates` are near ones
│   └── AmbiguousName  several have it; `candidates` are some of them
├── BrokenHistory      the recorded events of a rollout do not make a trajectory
├── CannotVerify       re-executing the agent needs something that is not here (code, config, venv)
│   └── CodeLost       it ended its process, or did not come to an end
├── CannotExport       a rollout has no form in the format that was asked for
├── CannotImport       a log does not take a file: it is another deployment's, or at work
│   └── Contradicted   the log holds other events in the same places: nothing was written
└── CannotFork         a fork cannot go on: no deployment, or the agent's code departs from what is shared

The command line prints the message and exits with code 2; a message says what, where, and the next step.
"""

from collections.abc import Sequence

__all__ = [
    "AmbiguousName",
    "BrokenHistory",
    "CannotExport",
    "CannotFork",
    "CannotImport",
    "CannotVerify",
    "CodeLost",
    "Contradicted",
    "Misused",
    "NoRoom",
    "NoSource",
    "ReplayError",
    "UnknownName",
]


class ReplayError(Exception):
    """What was asked for cannot be done."""


class Misused(ReplayError):
    """The command line asks for something that cannot be meant."""


class NoSource(ReplayError):
    """Nothing to read trajectories from."""


class NoRoom(ReplayError):
    """There is no file for what is too much for memory."""


class UnknownName(ReplayError):
    """A name that means no rollout or run."""

    def __init__(self, message: str, *, candidates: Sequence[str] = ()) -> None:
        self.candidates = tuple(candidates)
        super().__init__(message)


class AmbiguousName(UnknownName):
    """A name that means several rollouts or runs."""


class BrokenHistory(ReplayError):
    """Events that cannot be read as one rollout's trajectory."""


class CannotVerify(ReplayError):
    """The agent's code cannot be run here."""


class CodeLost(CannotVerify):
    """The code ended the process that it ran in, or ran on until that was ended."""


class CannotFork(ReplayError):
    """A fork cannot be made, or not go on."""


class CannotExport(ReplayError):
    """What happened cannot be said in this format."""


class CannotImport(ReplayError):
    """The events of a file cannot go into this log."""


class Contradicted(CannotImport):
    """The first writer was another one; its events stand."""
