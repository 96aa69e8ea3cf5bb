"""Which worker processes serve each instance, and what is each of them told?

Called by `launch` for local pools and by `jetgym worker` for one worker of a pool elsewhere. Starts nothing.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from components.workers.spec import WorkerSpec
from orchestrator.describing import Checked, pool_size, pool_slots, roots
from orchestrator.errors import UsageError
from orchestrator.instances import Instance
from orchestrator.supervise import WorkerCommand

MARGIN_S: Final = 3.0
"""Seconds of `launch.drain_s` that a worker keeps for ending itself, or a quarter of them where they are few."""


def worker_commands(checked: Checked, url: str) -> Iterator[WorkerCommand]:
    """What to start for each instance, worker by worker."""
    for instance in checked.config.instances.values():
        for index in range(pool_size(checked.descriptions[instance.name])):
            spec = worker_spec(checked, instance, url, index)
            argv = checked.pythons[instance.name].command("components.workers")
            yield WorkerCommand(f"{instance.name}-{index}", argv, msgspec.json.encode(spec))


def worker_spec(checked: Checked, instance: Instance, url: str, index: int) -> WorkerSpec:
    """What the worker number `index` of an instance is told; secrets in clear. Its slots are its fixed share."""
    config, descriptions = checked.config, checked.descriptions
    workers, slots = pool_size(descriptions[instance.name]), pool_slots(descriptions[instance.name])
    if index >= workers:
        raise UsageError(f"{instance.name} has {workers} workers by its config, so their indexes end at {workers - 1}")
    drain_s = config.settings.launch.drain_s
    return WorkerSpec(
        kind=instance.kind,
        instance=instance.name,
        implementation=instance.implementation,
        config=instance.content,
        log=config.settings.log.model_dump(mode="json"),
        url=url,
        worker_index=index,
        slots=(0,) if slots == 1 else tuple(range(index, slots, workers)),
        slots_of={name: pool_slots(other) for name, other in descriptions.items()},
        drain_s=drain_s - min(MARGIN_S, drain_s / 4),
        roots=roots(config),
    )
