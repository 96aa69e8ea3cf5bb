"""The errors of the contracts, drawn here and raised by every module of the package.

ContractError
├── InvalidName        an identifier that would break a subject
├── InvalidEvent       bytes that are no event of ours
│   └── NewerVersion   an event whose major version is newer than this code
├── InvalidTask        a line of a dataset that is no task (file, line, field)
├── MissingContext     an event cites what was said in a model call that is not among the events at hand
├── NoChatForm         an item that Chat Completions cannot carry
└── NoResponsesForm    something of Chat Completions that a Responses request or response cannot carry
"""

__all__ = [
    "ContractError",
    "InvalidEvent",
    "InvalidName",
    "InvalidTask",
    "MissingContext",
    "NewerVersion",
    "NoChatForm",
    "NoResponsesForm",
]


class ContractError(ValueError):
    """Something said does not follow the contracts."""


class InvalidName(ContractError):
    """An identifier with a character, a length or an emptiness that a subject cannot carry."""


class InvalidEvent(ContractError):
    """Bytes that do not decode to an event."""


class NewerVersion(InvalidEvent):
    """An event written by a newer major version of JetGym: upgrade this worker."""


class InvalidTask(ContractError):
    """A dataset line that is no task; `where` is `file:line`, `field` the path of what is wrong."""

    def __init__(self, message: str, *, where: str = "", field: str = "") -> None:
        self.where, self.field, self.message = where, field, message
        super().__init__(": ".join(part for part in (where, field, message) if part))


class MissingContext(ContractError):
    """A cited model call is not among the events at hand, or has fewer items."""


class NoChatForm(ContractError):
    """An item, part or option that the Chat Completions format cannot say; `name` is its type."""

    def __init__(self, name: str, message: str) -> None:
        self.name = name
        super().__init__(message)


class NoResponsesForm(ContractError):
    """A message, field or option that the Responses format cannot say; `name` is its type."""

    def __init__(self, name: str, message: str) -> None:
        self.name = name
        super().__init__(message)
