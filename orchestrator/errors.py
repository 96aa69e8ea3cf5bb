"""The errors of the orchestrator, drawn here and raised by every module of the package.

OrchestratorError
├── UsageError         the command line asks for something that cannot be done as asked
├── ConfigError        the configuration is wrong; `problems` has all of them
├── InputError         a file of tasks is wrong; `problems` has the first of them
├── FeedTaken          another trainer goes on with this feed
├── FeedStarved        a batch did not fill in time; the message names what is missing
├── RunCancelled       the run of a trainer was cancelled: nothing more comes of it
├── AdapterError       a trainer cannot be given what its own protocol promises
│   ├── NoTrajectory   a rollout did not complete, or has no tokens
│   ├── NotContiguous  a rollout's tokens do not go on from turn to turn
│   └── WorkerStalled  a rollout worker died, or nothing was new of its run for too long
└── LaunchError        a part of the deployment could not be started or kept running
    ├── VenvError      a component's venv could not be built
    └── WorkerDied     a worker ended before it served, repeatedly

The command line prints the message and exits with code 2; a message says what, where, and the next step.
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

__all__ = [
    "AdapterError",
    "ConfigError",
    "FeedStarved",
    "FeedTaken",
    "InputError",
    "LaunchError",
    "NoTrajectory",
    "NotContiguous",
    "OrchestratorError",
    "Problem",
    "RunCancelled",
    "UsageError",
    "VenvError",
    "WorkerDied",
    "WorkerStalled",
    "nearest",
]


class OrchestratorError(Exception):
    """What was asked for cannot be done."""


class UsageError(OrchestratorError):
    """The arguments contradict each other or what is on disk."""


class Problem(NamedTuple):
    """One fault in something that a user wrote."""

    where: str
    """A file, or `file:line`; empty when it is not known."""
    path: str
    """Where in it: `policy.models.chat_model.base_url`, `responses_create_params.input`."""
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in self if part)


class ConfigError(OrchestratorError):
    """The configuration is wrong: one line a problem."""

    def __init__(self, problems: Sequence[Problem] | str) -> None:
        self.problems = (Problem("", "", problems),) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class InputError(OrchestratorError):
    """A file holds lines that are no tasks; `total` counts them, `problems` are the first ones."""

    def __init__(self, message: str, *, problems: Sequence[Problem], total: int) -> None:
        self.problems, self.total = tuple(problems), total
        super().__init__(message)


class FeedTaken(OrchestratorError):
    """Two trainers use one feed of one run."""


class FeedStarved(OrchestratorError):
    """A batch did not fill within the feed's patience.

    `missing` are rollouts that have not ended; `dropped` counts those that were dropped while the batch was awaited, by
    reason.
    """

    def __init__(self, message: str, *, missing: Sequence[str], dropped: Mapping[str, int]) -> None:
        self.missing, self.dropped = tuple(missing), dict(dropped)
        super().__init__(message)


class RunCancelled(OrchestratorError):
    """A trainer's run was cancelled, by the trainer or by somebody else; `reason` is what they said."""

    def __init__(self, run: str, reason: str) -> None:
        self.run, self.reason = run, reason
        super().__init__(
            f"run {run} was cancelled: {reason}; nothing more comes of it, and it stays so: train on under another run"
        )


class AdapterError(OrchestratorError):
    """What a trainer's protocol promises cannot be given."""


class NoTrajectory(AdapterError):
    """A rollout did not complete, or none of its model calls has tokens."""


class NotContiguous(AdapterError):
    """A prompt does not begin with the tokens of the turns before it."""


class WorkerStalled(AdapterError):
    """A rollout worker died, or nothing was new of its run for too long."""


class LaunchError(OrchestratorError):
    """A part of the deployment does not run."""


class VenvError(LaunchError):
    """A venv could not be built; the message ends with what the installer said."""


class WorkerDied(LaunchError):
    """A worker cannot be kept alive; the message ends with the tail of its log."""


def nearest(name: str, known: Sequence[str]) -> str:
    """How a message goes on after an unknown name: the nearest right one, or all of them."""
    if found := get_close_matches(name, known, n=1):
        return f"did you mean {found[0]!r}?"
    return f"there are: {', '.join(sorted(known))}" if known else "there is none"
