"""Computes a resources component's own metrics over the result lines of a run.

The orchestrator calls `aggregate` in its own process for components that need nothing beyond the core, and runs
`python -m components.workers.aggregate` in the component's venv for the others (one JSON document in, one out).
"""

import asyncio
import sys
from typing import Any

import msgspec

from components.loading import add_roots, load
from components.resources.base import Resources
from components.resources.errors import ResourcesError
from components.resources.runtime import Runtime


class AggregateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to aggregate."""

    implementation: str
    config: dict[str, Any]
    path: str
    """The run's `rollouts.jsonl`."""
    agents: tuple[str, ...]
    """The agents whose lines count: those whose resources are this instance."""
    roots: tuple[str, ...] = ()


class Aggregated(msgspec.Struct, frozen=True, kw_only=True):
    """The component's metrics, or why there are none."""

    metrics: dict[str, Any] = {}
    error: str = ""


class _Agent(msgspec.Struct):
    agent: str


def aggregate(request: AggregateRequest) -> Aggregated:
    """The metrics; what the component raised is in `error`."""
    add_roots(request.roots)
    component = load("resources", request.implementation)
    if not issubclass(component, Resources):
        raise TypeError(f"{component} is no resources component")
    runtime = Runtime(component(component.config_class().model_validate(request.config)))
    with open(request.path, "rb") as file:  # noqa: PTH123 - a path that came as text
        lines = [
            msgspec.json.decode(line) for line in file if msgspec.json.decode(line, type=_Agent).agent in request.agents
        ]
    try:
        return Aggregated(metrics=asyncio.run(runtime.aggregate_metrics(lines)))
    except ResourcesError as error:
        return Aggregated(error=str(error))


def main() -> None:
    """Reads an `AggregateRequest` from standard input and prints what was `Aggregated`."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=AggregateRequest)
    sys.stdout.buffer.write(msgspec.json.encode(aggregate(request)))


if __name__ == "__main__":
    main()
