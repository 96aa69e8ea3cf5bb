"""The error of models.

ModelError      a model call that got no answer; its `kind` says which of `contracts.events.ErrorKind` it is:
                bad_request     the engine refused the request as it is: asking again is useless
                context_length  the prompt, or the prompt and the tokens asked for, do not fit the model
                unavailable     the engine could not be reached, or kept failing, until the call gave up
                deadline        the engine took the request and did not answer in time
                internal        the model component itself is at fault

Raised by `Model.start` and `Model.responses`; a worker turns it into the call's error reply.
"""

from collections.abc import Mapping

from contracts.events import CallError, ErrorKind

__all__ = ["ModelError"]


class ModelError(Exception):
    """A model call got no answer. The message says what, where, and the next step, and never holds a secret."""

    def __init__(self, kind: ErrorKind, message: str, *, details: Mapping[str, str] | None = None) -> None:
        self.kind = kind
        self.message = message
        self.details = dict(details or {})
        """For machines: `status` of an HTTP answer, `url` without credentials, `tries`."""
        super().__init__(message)

    @property
    def transient(self) -> bool:
        """Whether the same call may succeed at another time."""
        return self.kind in {"unavailable", "deadline"}

    def call_error(self) -> CallError:
        """The error as it stands in the log."""
        return CallError(kind=self.kind, message=self.message, details=self.details)
