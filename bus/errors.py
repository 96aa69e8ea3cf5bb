"""The errors of the bus, drawn here and raised by every module of the package.

BusError
├── Unreachable          no NATS server answers, or it was away for longer than the bus waits
├── ServerUnfit          a server that cannot hold the log: too old, no JetStream, its payload limit too small
├── ServerNotStarted     the embedded server did not come up (binary, directory, or what its log says)
│   └── PortInUse        something else listens on the port that was asked for
├── StoreInUse           another process has this store directory open
├── NoLog                there is no log where one is looked for, or it is not said which
├── LogFull              the log has had no room for an event for as long as whoever writes it can wait
├── LogMismatch          the streams that exist were made with another, incompatible configuration
├── ApiRefused           JetStream refused a request, with its own code
├── PublishRefused       the server will never store this event
│   ├── Conflict         another event holds the subject: first writer wins
│   ├── EventIdReused    the same event ID was stored with other bytes: a fault of the writer
│   ├── Unreadable       what holds the subject is no event of it that this version knows
│   └── PayloadTooLarge  over the blob limit: not retried
├── BlobLost             a reference whose blob is missing or broken
└── BusClosed            the bus was closed while this was waiting
"""

from typing import Final

from bus.deadletter import DeadLetter
from contracts.events import Recorded

_CANNOT_WRITE: Final = "The server could not write: is there room on its disk? Its log says more"
_NEXT_STEP: Final = {
    10008: "More than half of the servers of its cluster have to be up: start them",
    10012: _CANNOT_WRITE,
    10049: _CANNOT_WRITE,
}
"""By the code of the error."""

__all__ = [
    "ApiRefused",
    "BlobLost",
    "BusClosed",
    "BusError",
    "Conflict",
    "EventIdReused",
    "LogFull",
    "LogMismatch",
    "NoLog",
    "PayloadTooLarge",
    "PortInUse",
    "PublishRefused",
    "ServerNotStarted",
    "ServerUnfit",
    "StoreInUse",
    "Unreachable",
    "Unreadable",
]


class BusError(Exception):
    """Something between this process and the log failed."""


class Unreachable(BusError):
    """No NATS server answered at the URL within its deadline."""


class ServerUnfit(BusError):
    """The server that answered cannot hold the log; the message says what it lacks and what to do."""


class ServerNotStarted(BusError):
    """The embedded server did not start; the message names its log file or the missing binary."""


class PortInUse(ServerNotStarted):
    """The port that was asked for is taken."""

    def __init__(self, port: int) -> None:
        self.port = port
        super().__init__(f"port {port} on 127.0.0.1 is in use: stop what listens there, or leave the port out")


class StoreInUse(BusError):
    """Another process has the store directory open; two servers on one store would destroy it."""


class NoLog(BusError):
    """No log is where one is looked for, or several are; the message says where the log may be."""


class LogFull(BusError):
    """The log has no room; what was to be written is not in it. The message says what to do."""


class LogMismatch(BusError):
    """The log exists with another configuration; the message names the fields, what is there and what was asked."""


class ApiRefused(BusError):
    """JetStream's own error: `code` is like an HTTP status, `err_code` names the cause."""

    def __init__(self, what: str, code: int, err_code: int, description: str) -> None:
        self.code, self.err_code, self.description = code, err_code, description
        told = f"{what}: {description} ({code}, error {err_code})"
        super().__init__(f"{told}. {_NEXT_STEP[err_code]}" if err_code in _NEXT_STEP else told)


class PublishRefused(BusError):
    """The event is not in the log and never will be under this subject."""


class Conflict(PublishRefused):
    """Another event holds the subject; `stored` is that event."""

    def __init__(self, stored: Recorded) -> None:
        self.stored = stored
        super().__init__(f"{stored.subject} already holds event {stored.event.id!r} (sequence {stored.seq})")


class EventIdReused(PublishRefused):
    """The subject holds an event with the same ID and other bytes; `stored` is that event."""

    def __init__(self, stored: Recorded) -> None:
        self.stored = stored
        super().__init__(
            f"{stored.subject} holds event {stored.event.id!r} with other content: two writers share a worker ID, "
            "or one ID was given to two events"
        )


class Unreadable(PublishRefused):
    """The subject holds what this version cannot read; `letter` is the dead letter that it becomes."""

    def __init__(self, letter: DeadLetter) -> None:
        self.letter = letter
        super().__init__(f"{letter.subject} holds what cannot be read (sequence {letter.seq}): {letter.message}")


class PayloadTooLarge(PublishRefused):
    """The data of one event is over the blob limit, or its envelope over the server's. Sizes are in bytes."""

    def __init__(self, item: str, size: int, limit: int) -> None:
        self.item, self.size, self.limit = item, size, limit
        super().__init__(f"{item} has {size:,} bytes, the limit is {limit:,}: make it smaller")


class BlobLost(BusError):
    """`dataref` names a blob that is not in the log or does not have its digest."""


class BusClosed(BusError):
    """The bus was closed before this was done."""
