"""What the deployment says of itself: which code a worker ran, and with which config.

Built from the `deployment.*` events. `show` names versions by it, `list` environments, `verify` finds the agent's code
and config and tells whether the code has changed. Pure.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from contracts.deployments import Description, ResolvedDeployment, RunStarted, WorkerStarted
from contracts.events import Recorded
from replay.errors import NoSource
from replay.source import Source

_RESOLVED: Final = msgspec.json.Decoder(ResolvedDeployment)
_WORKER: Final = msgspec.json.Decoder(WorkerStarted)
_RUN: Final = msgspec.json.Decoder(RunStarted)


class Facts:
    """The deployments of a log: there are several where it was started again."""

    def __init__(self, events: Iterable[tuple[Recorded, bytes]]) -> None:
        """Takes each `deployment.*` event with its data, in the order of the log."""
        self.events = list(events)
        self.workers: dict[str, WorkerStarted] = {}
        self.asked: dict[str, int] = {}
        """Rollouts that each run asks for."""
        self._deployed: dict[str, ResolvedDeployment] = {}
        """What was deployed when each worker started."""
        self.latest: ResolvedDeployment | None = None
        for recorded, data in self.events:
            try:
                if recorded.event.type == "deployment.resolved":
                    self.latest = _RESOLVED.decode(data)
                elif recorded.event.type == "deployment.worker":
                    worker = _WORKER.decode(data)
                    self.workers[worker.worker] = worker
                    if self.latest is not None:
                        self._deployed[worker.worker] = self.latest
                elif recorded.event.type == "deployment.run":
                    run = _RUN.decode(data)
                    self.asked[run.run_id] = run.rollouts
            except msgspec.DecodeError as error:
                raise NoSource(f"event {recorded.seq} ({recorded.event.type}): {error}") from error

    def description(self, instance: str, worker: str = "") -> Description | None:
        """What the instance was when this worker started; what it was last, where nothing is known of the worker."""
        deployed = self._deployed.get(worker, self.latest)
        return deployed.descriptions.get(instance) if deployed is not None else None

    def environment(self, agent: str) -> str:
        """The resources instance that an agent's config names as its `resources`; empty where there is none."""
        description = self.description(agent)
        references = description.references if description is not None else ()
        return next((found.name for found in references if found.path == "resources"), "")


async def facts_of(source: Source) -> Facts:
    """Reads the facts of a source."""
    events = await source.deployment()
    return Facts([(recorded, await source.data(recorded.event)) for recorded in events])
