"""The errors of resources components, drawn here: of their code, of their calls, and the one that authors raise.

InvalidComponent
└── InvalidResources       a class breaks a rule of the author's API; raised while the class is defined
ResourcesError             a call is answered with this typed error (`call_error`)
├── TaskMisfit             the task's line does not fit the type that the component declares
├── ResponseMisfit         what is to be scored is no Responses object
├── SeedFailed             seed_session raised
├── VerifyFailed           verify raised, or returned something that is no reward
├── MetricsFailed          aggregate_metrics raised, or returned something that is no JSON object
├── SnapshotFailed         snapshot raised, or returned something that JSON does not give back
├── DeadlineExceeded       the component's own code took longer than its config allows
└── SessionLost            the session is not here and cannot be rebuilt or restored
ToolError                  for authors: its message is what the model reads
"""

from typing import ClassVar

from components.errors import InvalidComponent
from contracts.events import CallError, ErrorKind

__all__ = [
    "DeadlineExceeded",
    "InvalidResources",
    "MetricsFailed",
    "ResourcesError",
    "ResponseMisfit",
    "SeedFailed",
    "SessionLost",
    "SnapshotFailed",
    "TaskMisfit",
    "ToolError",
    "VerifyFailed",
]


class InvalidResources(InvalidComponent):
    """A class breaks a rule of the author's API; the message names class, method and parameter."""

    def __init__(self, place: str, message: str) -> None:
        self.place = place
        super().__init__(f"{place}: {message}")


class ResourcesError(Exception):
    """A call that ends in a typed error; `details` is for machines."""

    kind: ClassVar[ErrorKind] = "internal"

    def __init__(self, message: str, **details: str) -> None:
        self.details = details
        super().__init__(message)

    def call_error(self) -> CallError:
        """The error as the caller gets it."""
        return CallError(kind=self.kind, message=str(self), details=self.details)


class TaskMisfit(ResourcesError):
    """The task's line does not fit the type that the component declares for it."""

    kind = "bad_request"


class ResponseMisfit(ResourcesError):
    """What is to be scored is no Responses object."""

    kind = "bad_request"


class SeedFailed(ResourcesError):
    """`seed_session` raised."""

    kind = "verify_error"


class VerifyFailed(ResourcesError):
    """`verify` raised or returned no reward. There is no reward then, not a reward of 0."""

    kind = "verify_error"


class MetricsFailed(ResourcesError):
    """`aggregate_metrics` raised or returned no JSON object."""

    kind = "verify_error"


class SnapshotFailed(ResourcesError):
    """`snapshot` raised, or returned what cannot be stored. The session is as if the call had not been made."""

    kind = "verify_error"


class DeadlineExceeded(ResourcesError):
    """The component's code took longer than its config allows."""

    kind = "deadline"


class SessionLost(ResourcesError):
    """The session is not here and cannot be rebuilt or restored."""

    kind = "unavailable"


class ToolError(Exception):
    """Raise it in a tool to tell the model what went wrong: the message becomes the output, the rollout goes on."""
