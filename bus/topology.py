"""What streams a deployment has, and how they come to be.

Called when a deployment or a client starts, and when a log is given another bound. It creates what is missing, checks
what is there, and never deletes anything. A log that was made with other partitions is refused, because rollouts would
be looked for in the wrong one.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, Literal, Self

import msgspec
import structlog
from pydantic import BaseModel, ConfigDict, Field, field_validator

from bus.connection import Connection
from bus.errors import ApiRefused, LogMismatch, ServerUnfit
from bus.subjects import Subjects
from contracts.ids import check_name
from contracts.spans import read_span

ENVELOPE_BYTES: Final = 16 * 1024
"""Room that the envelope of an event may take beside its data."""

Durability = Literal["fast", "always", "replicated"]
"""What an event that is in the log survives, beside the crash of any process, which all of them survive."""

_REPLICAS: Final = 3
_NS: Final = 1_000_000_000
_NOT_FOUND: Final = 10059
PARTITIONS: Final = "jetgym_partitions"
_NO_PEERS: Final = (10005, 10074)
"""Too few servers for the replicas; a server that is in no cluster."""

_log = structlog.get_logger("bus.topology")


class LogConfig(BaseModel):
    """The log of one deployment. Everybody who takes part in it has the same one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    namespace: str = "jetgym"
    """First token of all subjects, and the name of the deployment on its NATS."""
    partitions: int = Field(default=1, ge=1, le=1024)
    """Streams that the rollouts are spread over. Cannot change once the log exists."""
    durability: Durability = "fast"
    """What a stored event survives, beside the crash of any process.

    `fast`: one copy, which the server syncs to disk every two minutes: a power cut may take so much. `always`: one
    copy, synced before it is acknowledged: nothing is lost while the disk lives. `replicated`: three copies on three
    servers of a cluster, acknowledged when two have it: nothing is lost while two servers live.
    """
    max_bytes: int = Field(default=-1, ge=-1)
    """Largest size of one partition in bytes; a full log makes publishers wait. -1: as the server's own limit."""
    max_age: str | None = None
    """A finished run whose last event is older (`7d`, `12h`, `30m`) leaves the log; None: however old it is, it stays.

    The server is not told: it would take events of open rollouts too.
    """
    compression: bool = True
    """S2 compression of the log on disk: less than half the bytes. NATS compresses a block when it is full."""
    inline_limit: int = Field(default=65_536, ge=1024)
    """Data of more bytes than this is stored once as a blob and referred to by its SHA-256."""
    blob_limit: int = Field(default=64 * 1024 * 1024, ge=1024, le=1024 * 1024 * 1024)
    """Data of more bytes than this is refused."""
    ack_wait_s: float = Field(default=30.0, gt=0)
    """Seconds without a sign of life after which a delivery goes to another worker."""
    max_deliver: int = Field(default=20, ge=1)
    """Deliveries of one event before it becomes a dead letter. Those to workers that were told to stop are taken off: a
    run may be resumed, and its workers replaced, as often as it takes."""

    @classmethod
    def of_record(cls, recorded: Mapping[str, Any]) -> Self:
        """The configuration that a deployment or a run recorded, without what only another version of JetGym knows."""
        return cls.model_validate({key: value for key, value in recorded.items() if key in cls.model_fields})

    @property
    def replicas(self) -> int:
        """Servers that hold each event."""
        return _REPLICAS if self.durability == "replicated" else 1

    @property
    def age_limit(self) -> timedelta | None:
        """`max_age` as a span of time."""
        return None if self.max_age is None else read_span(self.max_age)

    @field_validator("max_age")
    @classmethod
    def _max_age(cls, value: str | None) -> str | None:
        if value is not None and not read_span(value):
            raise ValueError("must be at least 1m; leave it out to keep runs however old they are")
        return value

    @field_validator("namespace")
    @classmethod
    def _namespace(cls, value: str) -> str:
        return check_name(value, "namespace", 32)


class _State(msgspec.Struct):
    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0


class StreamInfo(msgspec.Struct):
    """What JetStream says of a stream."""

    config: dict[str, Any]
    state: _State


async def stream_info(connection: Connection, stream: str) -> StreamInfo:
    """Raises `ApiRefused` if there is no such stream."""
    return await connection.api(f"STREAM.INFO.{stream}", None, StreamInfo)


async def resize(connection: Connection, stream: str, max_bytes: int) -> None:
    """Gives a stream another bound; raises `ApiRefused`."""
    found = await stream_info(connection, stream)
    await _change(connection, "UPDATE", {**found.config, "max_bytes": max_bytes})


async def ensure_log(connection: Connection, config: LogConfig, subjects: Subjects, *, adjust: bool) -> None:
    """Creates the streams that are missing; see `Bus.ensure_log`."""
    room = connection.max_payload - ENVELOPE_BYTES
    if config.inline_limit > room:
        raise ServerUnfit(
            f"inline_limit {config.inline_limit} does not fit the server's max_payload {connection.max_payload}: "
            f"set inline_limit to at most {room}, or raise max_payload"
        )
    wanted = [_stream(config, subjects.stream(p), f"{config.namespace}.{p}.>") for p in range(config.partitions)]
    blobs = _stream(config, subjects.blob_stream, f"{config.namespace}.blob.>")
    for stream in [*wanted, blobs]:
        await _ensure(connection, stream, adjust=adjust)


def _stream(config: LogConfig, name: str, subject: str) -> dict[str, Any]:
    return {
        "name": name,
        "subjects": [subject],
        "storage": "file",
        "retention": "limits",
        "discard": "new",
        "allow_direct": True,
        "max_bytes": config.max_bytes,
        "max_age": 0,  # an open rollout's events may not go: `LogConfig.max_age` takes runs that have ended
        "num_replicas": config.replicas,
        "compression": "s2" if config.compression else "none",
        "duplicate_window": _NS // 10,
        "max_msgs": -1,
        "max_msg_size": -1,
        "max_consumers": -1,
        "metadata": {PARTITIONS: str(config.partitions)},
    }


_FIXED: Final = ("subjects", "storage", "retention", "discard", "allow_direct")
_ADJUSTABLE: Final = ("max_bytes", "max_age", "num_replicas", "compression")


async def _ensure(connection: Connection, wanted: dict[str, Any], *, adjust: bool) -> None:
    name = wanted["name"]
    try:
        found = (await stream_info(connection, name)).config
    except ApiRefused as error:
        if error.err_code != _NOT_FOUND:
            raise
        found = (await _change(connection, "CREATE", wanted)).config
    partitions = (found.get("metadata") or {}).get(PARTITIONS)
    differing = {key: (found.get(key), wanted[key]) for key in _FIXED if found.get(key) != wanted[key]}
    if partitions != wanted["metadata"][PARTITIONS]:
        differing["partitions"] = (partitions, wanted["metadata"][PARTITIONS])
    if differing:
        told = "; ".join(f"{key} is {there!r}, asked for {asked!r}" for key, (there, asked) in differing.items())
        raise LogMismatch(
            f"stream {name} at {connection.url} exists with another configuration: {told}. "
            "Use the configuration it was made with, or another namespace"
        )
    changed = {key: (found.get(key), wanted[key]) for key in _ADJUSTABLE if found.get(key) != wanted[key]}
    if changed and adjust:
        await _change(connection, "UPDATE", {**found, **{key: wanted[key] for key in changed}})
    elif changed:
        _log.warning("log_settings_differ", stream=name, kept={key: there for key, (there, _) in changed.items()})


async def _change(connection: Connection, verb: str, stream: dict[str, Any]) -> StreamInfo:
    try:
        return await connection.api(f"STREAM.{verb}.{stream['name']}", stream, StreamInfo)
    except ApiRefused as error:
        if error.err_code not in _NO_PEERS:
            raise
        raise ServerUnfit(
            f"durability 'replicated' needs a cluster of {stream['num_replicas']} nats-servers that are all up, and "
            f"{connection.url} is none: {error}"
        ) from None
