"""The errors of the contracts, drawn here and raised by every module of the package.

ContractError
├── InvalidName        an identifier that would break a subject
├── InvalidEvent       bytes that are no event of ours
│   └── NewerVersion   an event whose major version is newer than this code
├── InvalidTask        a line of a dataset that is no task (file, line, field)
├── BlobMissing        an event's data or capture is elsewhere and was not fetched
├── TwoPayloads        two events say different things of one call
├── OtherTokenizer     tokens were recorded under another tokenizer or chat template than they are read under
├── MissingContext     an event cites what was said in a model call that is not among the events at hand
├── NoChatForm         an item that Chat Completions cannot carry
└── NoResponsesForm    something of Chat Completions that a Responses request or response cannot carry
"""

__all__ = [
    "BlobMissing",
    "ContractError",
    "InvalidEvent",
    "InvalidName",
    "InvalidTask",
    "MissingContext",
    "NewerVersion",
    "NoChatForm",
    "NoResponsesForm",
    "OtherTokenizer",
    "TwoPayloads",
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


class BlobMissing(ContractError):
    """An event refers to a blob that is not among the blobs at hand."""


class TwoPayloads(ContractError):
    """One call has two requests or two replies that differ: these events are not of one log."""

    def __init__(self, rollout: str, call: str, type: str) -> None:  # noqa: A002
        self.rollout, self.call = rollout, call
        super().__init__(f"rollout {rollout}, call {call!r}: there are two {type} events, and they differ")


class OtherTokenizer(ContractError):
    """The recorded digest of the tokenizer or chat template is not the one that is expected."""

    def __init__(self, rollout: str, what: str, recorded: str, expected: str) -> None:
        self.rollout, self.recorded, self.expected = rollout, recorded, expected
        there = f"the {what} {recorded}" if recorded else f"no {what}"
        super().__init__(
            f"rollout {rollout} has {there} recorded with its tokens, not {expected}: its token IDs mean other text"
        )


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
