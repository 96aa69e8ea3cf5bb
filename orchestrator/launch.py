"""How does a deployment come up, and how does it end?

`Deployment.start` starts the server, makes the log, writes into it what is deployed, and starts the workers;
`Deployment.connect` uses one that runs elsewhere. Called by the commands, which hand the deployment's bus to
`collect`. It never looks into tasks or rollouts.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from secrets import choice
from typing import Any, Final, Self, TypeVar

import msgspec

from bus import Bus, EmbeddedServer, LogConfig
from components.workers.spec import WorkerSpec
from contracts.deployments import Description, ResolvedDeployment
from orchestrator.config import Config, Instance
from orchestrator.describing import Descriptions, roots
from orchestrator.errors import ConfigError, UsageError
from orchestrator.run_files import RunFiles
from orchestrator.supervise import Supervisor, WorkerCommand
from orchestrator.venvs import Python

T = TypeVar("T")
Report = Callable[[str], None]
"""Told in a few words what is going on."""

_ALPHABET: Final = "abcdefghjkmnpqrstuvwxyz23456789"


def new_id(letter: str) -> str:
    """An ID like `r1129-1612-x7k2`: what it is for, when, and four characters of chance."""
    return f"{letter}{datetime.now(UTC):%m%d-%H%M}-{''.join(choice(_ALPHABET) for _ in range(4))}"


class Deployment:
    """A running deployment: its log, and what serves it."""

    def __init__(self, bus: Bus, url: str, config: Config, descriptions: Descriptions) -> None:
        self.bus = bus
        self.url = url
        self.config = config
        self.descriptions = descriptions
        self._supervisor: Supervisor | None = None

    @classmethod
    @asynccontextmanager
    async def start(
        cls,
        config: Config,
        descriptions: Descriptions,
        pythons: Mapping[str, Python],
        folder: Path,
        report: Report,
    ) -> AsyncIterator[Self]:
        """Starts everything that `config` names, with the log's data and the workers' logs below `folder`.

        Raises `LaunchError`, or the bus's error when a given server does not answer. On leaving, workers drain.
        """
        settings = config.settings
        async with AsyncExitStack() as stack:
            files = stack.enter_context(RunFiles(folder))
            if (url := settings.server.url) is None:
                report("starting the server")
                server = await EmbeddedServer.start(
                    folder / "log", settings.log, binary=settings.server.binary, port=settings.server.port
                )
                stack.push_async_callback(server.stop)
                url = server.url
            bus = await _connect(url, settings.log, descriptions)
            stack.push_async_callback(bus.close)
            await bus.ensure_log()
            deployment = cls(bus, url, config, descriptions)
            await deployment._record()
            supervisor = Supervisor(settings.launch, folder / "logs", config.redactor, report)
            stack.push_async_callback(supervisor.stop)
            commands = list(worker_commands(config, descriptions, pythons, url))
            report(f"starting {len(commands)} workers")
            await supervisor.start(commands)
            deployment._supervisor = supervisor
            files.live({"url": config.redactor.text(url), "pid": os.getpid(), "workers": supervisor.pids})
            yield deployment
            report("waiting for workers to finish what they hold")

    @classmethod
    @asynccontextmanager
    async def connect(cls, url: str, config: Config) -> AsyncIterator[Self]:
        """Uses the deployment behind `url`: what it consists of is read from its log.

        Raises `UsageError` when nothing is deployed there.
        """
        async with AsyncExitStack() as stack:
            bus = await _connect(url, config.settings.log, {})
            stack.push_async_callback(bus.close)
            resolved = await resolved_deployment(bus)
            if resolved is None:
                raise UsageError(
                    f"nothing is deployed at {config.redactor.text(url)} in the namespace "
                    f"{config.settings.log.namespace!r}; start it with `jetgym up CONFIG… --url …`"
                )
            await bus.close()
            bus = await _connect(url, LogConfig.model_validate(resolved.log), resolved.descriptions)
            stack.push_async_callback(bus.close)
            yield cls(bus, url, config, resolved.descriptions)

    async def while_alive(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs `work`, and gives it up with `WorkerDied` when a worker of this deployment cannot be kept alive."""
        working = asyncio.create_task(work)
        watching = asyncio.create_task(self._supervisor.watch()) if self._supervisor else None
        tasks = {task for task in (working, watching) if task is not None}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not working.done() and watching is not None:
                watching.result()
            return working.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _record(self) -> None:
        """Writes into the log what is deployed."""
        resolved = ResolvedDeployment(
            config=self.config.redacted(self.descriptions),
            descriptions=dict(self.descriptions),
            log=self.config.settings.log.model_dump(mode="json"),
        )
        subject = self.bus.subjects.deployment("resolved", new_id("d"))
        data = msgspec.json.encode(resolved)
        await self.bus.publish(self.bus.event(type="deployment.resolved", subject=subject, data=data))


def worker_commands(
    config: Config, descriptions: Descriptions, pythons: Mapping[str, Python], url: str
) -> Iterator[WorkerCommand]:
    """What to start for each instance, worker by worker."""
    for instance in config.instances.values():
        for index in range(pool_size(descriptions[instance.name])):
            spec = worker_spec(config, descriptions, instance, url, index)
            argv = pythons[instance.name].command("components.workers")
            yield WorkerCommand(f"{instance.name}-{index}", argv, msgspec.json.encode(spec))


def worker_spec(config: Config, descriptions: Descriptions, instance: Instance, url: str, index: int) -> WorkerSpec:
    """What the worker number `index` of an instance is told; secrets in clear. Its slots are its fixed share."""
    description = descriptions[instance.name]
    workers, slots = pool_size(description), pool_slots(description)
    if index >= workers:
        raise UsageError(f"{instance.name} has {workers} workers by its config, so their indexes end at {workers - 1}")
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
        roots=roots(config),
    )


def pool_size(description: Description) -> int:
    """How many workers the instance has by its config."""
    return int(description.config["pool"]["workers"])


def pool_slots(description: Description) -> int:
    """How many slots the instance has by its config."""
    return int(description.config["pool"]["slots"])


def check_pools(config: Config, descriptions: Descriptions) -> None:
    """Raises `ConfigError` where a worker would get no slot, or a session would have no fixed worker."""
    problems = []
    for name, description in descriptions.items():
        workers, slots = pool_size(description), pool_slots(description)
        if slots < workers and (slots > 1 or description.stateful):
            why = "each worker needs a slot" if slots > 1 else "it keeps sessions, and each must find its worker again"
            path = (*config.instances[name].path, "pool", "slots")
            problems.append(
                config.problem(path, f"is {slots} for {workers} workers, at least {workers} are needed: {why}")
            )
    if problems:
        raise ConfigError(problems)


async def resolved_deployment(bus: Bus) -> ResolvedDeployment | None:
    """What was deployed last on this log, or None."""
    found = await bus.last(bus.subjects.deployment("resolved", "*"))
    if found is None:
        return None
    return msgspec.json.decode(await bus.fetch_data(found.event), type=ResolvedDeployment)


async def _connect(url: str, log: LogConfig, descriptions: Descriptions) -> Bus:
    name = f"orchestrator-{os.getpid()}"
    slots = {instance: pool_slots(description) for instance, description in descriptions.items()}
    return await Bus.connect(url, log, name=name, writer=f"orchestrator/{name}", slots=slots)
