"""How events travel: the log of a deployment on NATS JetStream. Every NATS word of the project is in here."""

from bus.bus import Bus
from bus.deadletter import DeadLetter
from bus.errors import BusError, Conflict, PayloadTooLarge, Unreachable
from bus.pool import Delivery, Pool
from bus.replies import Replies
from bus.server import EmbeddedServer
from bus.subjects import Subjects
from bus.topology import LogConfig

__all__ = [
    "Bus",
    "BusError",
    "Conflict",
    "DeadLetter",
    "Delivery",
    "EmbeddedServer",
    "LogConfig",
    "PayloadTooLarge",
    "Pool",
    "Replies",
    "Subjects",
    "Unreachable",
]
