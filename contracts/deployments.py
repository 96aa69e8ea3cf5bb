"""What a deployment says of itself: the `data` of the `deployment.*` events, and what a component is. No I/O.

The orchestrator describes each configured instance before anything starts; the description travels in the log, so
that a trainer on another machine knows the tools and the references without having the component's code.
"""

from typing import Any, Final, Literal

import msgspec

from contracts.events import Kind

REDACTED: Final = "<redacted>"
"""Stands where a config or a URL that is stored or shown has a secret."""


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """An instance named by another instance's config."""

    path: str
    """Where it stands in the config, like `model` or `judges.0`."""
    kind: Kind
    name: str


class ConfigProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One fault of a component's config."""

    path: str
    message: str


class Description(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a component instance is, found by loading its code and validating its config."""

    kind: Kind
    implementation: str
    config: dict[str, Any] = {}
    """Validated, defaults filled in, secrets masked."""
    keys: tuple[str, ...] = ()
    """All keys that this config takes, to name the nearest right one."""
    references: tuple[Reference, ...] = ()
    tools: tuple[dict[str, Any], ...] = ()
    """Resources: the function tools that it serves, as Responses tools."""
    stateful: bool = False
    """Resources: keeps a session, so that it must be seeded."""
    aggregates: bool = False
    """Resources: has metrics of its own over a run (`aggregate_metrics`)."""
    replay: Literal["execute", "recording"] = "execute"
    """Agents: whether its trajectories can be re-executed or only read."""
    version: str = ""
    digest: str = ""
    """SHA-256 over the Python files of the component's folder."""
    problems: tuple[ConfigProblem, ...] = ()


class WorkerStarted(msgspec.Struct, frozen=True, kw_only=True):
    """`deployment.worker`: facts that let a replay tell "the code changed" from "the code is not deterministic"."""

    worker: str
    kind: Kind
    instance: str
    implementation: str
    version: str
    digest: str
    python: str
    """Minor version, like `3.11`."""
    jetgym: str
    host: str
    pid: int


class WorkerStopping(msgspec.Struct, frozen=True, kw_only=True):
    """`deployment.stopping`: a worker was told to stop, and gives back what it cannot finish in time."""

    worker: str
    kind: Kind
    instance: str


class WorkerCrashed(msgspec.Struct, frozen=True, kw_only=True):
    """`deployment.crashed`: a worker ended by what ran in it, as its supervisor saw; nobody killed it from outside."""

    worker: str
    how: str
    """Exit code or signal, for a person."""


class CallTried(msgspec.Struct, frozen=True, kw_only=True):
    """`deployment.trying`: a worker begins a call that was delivered so often that it may be what ends its workers."""

    kind: Kind
    instance: str
    places: int
    """That the call takes of its worker's `pool.concurrency`."""
    alone: bool = False
    """It takes all of them: nothing else is in progress in the worker."""


class ResolvedDeployment(msgspec.Struct, frozen=True, kw_only=True):
    """`deployment.resolved`: what a deployment consists of, for whoever has only the log."""

    config: dict[str, Any]
    """As resolved, defaults filled in, without secrets."""
    descriptions: dict[str, Description]
    """By instance name."""
    log: dict[str, Any]
    """The log's config: namespace, partitions, limits."""


class RunStarted(msgspec.Struct, frozen=True, kw_only=True):
    """`deployment.run`: a run is about to ask for its rollouts."""

    run_id: str
    config: dict[str, Any]
    """As resolved for the run, without secrets."""
    rollouts: int
    """So many will be asked for."""
    skipped_lines: int
    """Lines of the input that were no tasks and were left out."""
    inputs_sha256: str
    """Of `materialized_inputs.jsonl`."""
