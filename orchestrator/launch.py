"""How does a deployment come up, and how does it end?

`Deployment.start` starts the server, makes the log, writes into it what is deployed, and starts the workers;
`Deployment.connect` uses one that runs elsewhere. Called by the commands, which hand the deployment's bus to
`collect`. It never looks into a task or a rollout.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from hashlib import file_digest
from pathlib import Path
from secrets import choice, token_hex
from typing import Any, Final, NoReturn, Self, TypeVar

import msgspec
from msgspec.structs import replace

from bus import Bus, Conflict, EmbeddedServer, LogConfig, Unreachable
from bus.connection import redacted
from bus.disk import no_room
from bus.errors import LogFull
from bus.overview import pool_states
from bus.reboot import begin_anew_after_reboot
from bus.room import unless_full
from bus.run_folder import LOG, WORKER_LOGS
from components.workers.stops import say_crashed
from contracts.deployments import Description, ResolvedDeployment, RunStarted
from orchestrator.ageing import keep_young, prune_old
from orchestrator.changes import differences
from orchestrator.config import Config
from orchestrator.describing import Checked, Descriptions, pool_slots
from orchestrator.errors import LaunchError, UsageError
from orchestrator.outages import tell_outages
from orchestrator.pools import worker_commands
from orchestrator.run_files import RunFiles
from orchestrator.supervise import Supervisor
from orchestrator.tasks import Materialized

T = TypeVar("T")
Report = Callable[[str], None]
"""Told in a few words what is going on."""
Look = Callable[["Deployment"], Coroutine[Any, Any, None]]
"""Looks at the log of a deployment while no worker of it has started."""

_LOOK_AGAIN_S: Final = 0.5
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
        self.rebooted = False
        """Whether the machine was started anew since the log was last served, if that is this deployment's own."""
        self._supervisor: Supervisor | None = None
        self._keeping: list[asyncio.Task[NoReturn]] = []
        """What keeps the server of the log running, where it is this deployment's own, and the log young."""

    @classmethod
    @asynccontextmanager
    async def start(
        cls,
        checked: Checked,
        files: RunFiles,
        report: Report,
        run: str | None = None,
        look: Look | None = None,
    ) -> AsyncIterator[Self]:
        """Starts everything that the config names; the log's data and the workers' logs go into the run's directory.

        `run` is the one that this process is going to collect: it is never too old for the log. `look` comes
        before the workers, and what it raises ends the start.

        Raises `LaunchError`, or the bus's error when a given server does not answer. On leaving, workers drain.
        """
        config, descriptions = checked.config, checked.descriptions
        settings, folder = config.settings, files.folder
        _check_durability(settings.log, settings.server.url)
        async with AsyncExitStack() as stack:
            server, keeping = None, []
            if (url := settings.server.url) is None:
                report("starting the server")
                if (why := await no_room(folder)) is not None:
                    raise LaunchError(f"there is no room on the disk of {folder} ({why}): make some, then say it again")
                server = await EmbeddedServer.start(
                    folder / LOG,
                    settings.log,
                    binary=settings.server.binary,
                    port=settings.server.port,
                    report=report,
                )
                stack.push_async_callback(server.stop)
                keeping.append(asyncio.create_task(server.keep(settings.launch.failed_starts, report)))
                stack.push_async_callback(_end, keeping[-1])
                url = server.url
            bus = await _connect(url, settings.log)
            stack.push_async_callback(bus.close)
            if server is None:
                await _hear_outages(stack, bus, config.redactor.text(redacted(url)), report)
            await bus.ensure_log(adjust=True)
            was_rebooted = server is not None and await begin_anew_after_reboot(bus, server.directory)
            if was_rebooted:
                report("the machine was started anew since: all that workers were asked for is looked at again")
            if (limit := settings.log.age_limit) is not None:
                report("looking for runs that are older than log.max_age")
                await prune_old(bus, limit, report, collected=run, keep_blobs=server is None)
                keeping.append(asyncio.create_task(keep_young(bus, limit, report, collected=run)))
                stack.push_async_callback(_end, keeping[-1])
            deployment = cls(bus, url, config, descriptions)
            deployment._keeping, deployment.rebooted = keeping, was_rebooted
            if look is not None:
                await deployment.while_alive(look(deployment))
            await deployment._record()
            supervisor = Supervisor(
                settings.launch,
                folder / WORKER_LOGS,
                config.redactor,
                report,
                until_log_serves=server.serving.wait if server is not None else None,
                on_crash=partial(say_crashed, bus),
            )
            stack.push_async_callback(supervisor.stop)
            commands = list(worker_commands(checked, url))
            report(f"starting {len(commands)} workers")
            await deployment.while_alive(supervisor.start(commands))
            deployment._supervisor = supervisor
            facts = {"url": config.redactor.text(url), "namespace": settings.log.namespace, "pid": os.getpid()}
            files.live({**facts, "workers": supervisor.pids})
            try:
                yield deployment
            finally:
                drain = f"{settings.launch.drain_s:g} s"
                report(f"waiting up to {drain} for workers to finish (launch.drain_s; Ctrl-C: at once)")

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, url: str, config: Config, report: Report, descriptions: Descriptions | None = None
    ) -> AsyncIterator[Self]:
        """Uses workers that others keep running: those that `descriptions` say, else those that the log names.

        Raises `UsageError` when the log names none, or names others than `descriptions`.
        """
        where = f"{config.redactor.text(url)} in the namespace {config.settings.log.namespace!r}"
        async with AsyncExitStack() as stack:
            bus = await stack.enter_async_context(await _connect(url, config.settings.log))
            try:
                resolved = await resolved_deployment(bus)
            except Unreachable:
                resolved = None  # the server has answered, so it is the log that is not there: workers may be to come
            if resolved is not None:
                if descriptions is not None and (other := list(_departures(resolved, config, descriptions))):
                    raise UsageError(
                        f"what is deployed at {where} is another config: {'; '.join(other)}. Leave CONFIG out to use "
                        f"what is deployed, or deploy this one with `jetgym up`"
                    )
                descriptions = descriptions or resolved.descriptions
                if (log := LogConfig.of_record(resolved.log)) != bus.config:
                    bus = await stack.enter_async_context(await _connect(url, log))
            if descriptions is None:
                raise UsageError(
                    f"nothing is deployed at {where}: start it with `jetgym up CONFIG… --url …`. Where workers were "
                    f"started one by one with `jetgym worker`, give their config: `jetgym run CONFIG… --url …`"
                )
            await bus.ensure_log()
            await _hear_outages(stack, bus, config.redactor.text(redacted(url)), report)
            yield cls(bus, url, config, descriptions)

    async def until_served(self, agents: Collection[str], report: Report) -> None:
        """Waits until workers serve all that rollouts of these agents need; raises `LaunchError` after a while."""
        needed = _reached(self.descriptions, agents)
        patience_s = self.config.settings.launch.start_deadline_s
        names = ""
        try:
            async with asyncio.timeout(patience_s):
                while missing := await self._unserved(needed):
                    before, names = names, ", ".join(sorted(missing))
                    if names != before:
                        report(f"waiting for workers of {names}")
                    await asyncio.sleep(_LOOK_AGAIN_S)
        except TimeoutError:
            raise LaunchError(
                f"no worker of {names} has come within {patience_s:g} s (launch.start_deadline_s): start them with "
                f"`jetgym up CONFIG… --url …`, or one by one with `jetgym worker`"
            ) from None

    async def _unserved(self, needed: set[str]) -> set[str]:
        served = {pool.instance: pool.served for pool in await pool_states(self.bus)}
        slots = {name: range(pool_slots(self.descriptions[name])) for name in needed}
        return {name for name in needed if not served.get(name, frozenset()).issuperset(slots[name])}

    async def while_alive(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs `work`, and gives it up when a part of this deployment cannot be kept alive.

        Raises `WorkerDied`, or `ServerNotStarted` for the server of the log.
        """
        working = asyncio.create_task(work)
        watching: list[asyncio.Future[None]] = [asyncio.shield(task) for task in self._keeping]
        if self._supervisor is not None:
            watching.append(asyncio.create_task(self._supervisor.watch()))
        tasks: set[asyncio.Future[Any]] = {working, *watching}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for watch in watching:
                if watch.done() and not working.done():
                    watch.result()
            return working.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def record_run(self, run_id: str, inputs: Path, tasks: Materialized) -> None:
        """Writes into the log that this run begins; a resumed run has done so before. Raises `LogFull`."""
        if await self.holds(run_id):
            return
        with inputs.open("rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
        started = RunStarted(
            run_id=run_id,
            config=self.config.redacted(self.descriptions),
            rollouts=len(tasks.tasks),
            skipped_lines=tasks.skipped,
            inputs_sha256=digest,
        )
        subject = self.bus.subjects.deployment("run", run_id)
        event = self.bus.event(type="deployment.run", subject=subject, data=msgspec.json.encode(started))
        with suppress(Conflict):
            await unless_full(self.bus, self.bus.publish(event))

    async def holds(self, run_id: str) -> bool:
        """Whether a run began in this log."""
        return await self.bus.last(self.bus.subjects.deployment("run", run_id)) is not None

    async def _record(self) -> None:
        """Writes into the log what is deployed."""
        resolved = ResolvedDeployment(
            config=self.config.redacted(self.descriptions),
            descriptions={
                name: replace(found, config=_shown(self.config, name, found))
                for name, found in self.descriptions.items()
            },
            log=self.config.settings.log.model_dump(mode="json"),
        )
        subject = self.bus.subjects.deployment("resolved", new_id("d"))
        data = msgspec.json.encode(resolved)
        event = self.bus.event(type="deployment.resolved", subject=subject, data=data)
        try:
            await unless_full(self.bus, self.bus.publish(event))
        except LogFull:
            told = "the log is full, so nothing can begin: give it a larger log.max_bytes, or prune it"
            raise LogFull(told) from None


def _shown(config: Config, name: str, description: Description) -> dict[str, Any]:
    """An instance's config without secrets."""
    shown: dict[str, Any] = config.redactor.tree(
        description.config, (name, description.kind, description.implementation)
    )
    return shown


def _departures(resolved: ResolvedDeployment, config: Config, descriptions: Descriptions) -> Iterator[str]:
    """What a given config says of the instances that are deployed, where it says something else."""
    here: dict[str, Any] = {"log": config.settings.log.model_dump(mode="json")}
    there: dict[str, Any] = {"log": LogConfig.of_record(resolved.log).model_dump(mode="json")}
    for name in descriptions.keys() & resolved.descriptions.keys():
        mine, theirs = descriptions[name], resolved.descriptions[name]
        here[name] = {mine.kind: {mine.implementation: _shown(config, name, mine)}}
        there[name] = {theirs.kind: {theirs.implementation: theirs.config}}
    for key, given, deployed in differences(here, there):
        yield f"{key} is {deployed} there, {given} here"


def _reached(descriptions: Descriptions, agents: Iterable[str]) -> set[str]:
    """The instances that these agents call, and those that they call in turn."""
    found: set[str] = set()
    reach = list(agents)
    while reach:
        if (name := reach.pop()) not in found:
            found.add(name)
            reach += [reference.name for reference in descriptions[name].references]
    return found


async def resolved_deployment(bus: Bus) -> ResolvedDeployment | None:
    """What was deployed last on this log, or None."""
    found = await bus.last(bus.subjects.deployment("resolved", "*"))
    if found is None:
        return None
    return msgspec.json.decode(await bus.fetch_data(found.event), type=ResolvedDeployment)


def _check_durability(log: LogConfig, url: str | None) -> None:
    """Raises `UsageError` for what this server cannot give."""
    if log.durability == "replicated" and url is None:
        raise UsageError(
            "log.durability=replicated needs a cluster of three nats-servers: name all of them in server.url "
            "(nats://A:4222,nats://B:4222,nats://C:4222)"
        )
    if log.durability == "always" and url is not None:
        raise UsageError(
            "log.durability=always says how the server that a deployment starts itself writes; the one in server.url "
            "does what its own config says: write `sync_interval: always` into its jetstream block, and leave "
            "log.durability out"
        )


async def _hear_outages(stack: AsyncExitStack, bus: Bus, url: str, report: Report) -> None:
    """Has `report` told of outages until the stack is left."""
    stack.push_async_callback(_end, asyncio.create_task(tell_outages(bus, url, report)))
    await asyncio.sleep(0)  # from now on it listens


async def _end(task: asyncio.Task[NoReturn]) -> None:
    """Cancels it. What it raised, whoever had to know was told."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()


async def _connect(url: str, log: LogConfig) -> Bus:
    writer = f"orchestrator-{token_hex(4)}"
    return await Bus.connect(url, log, name=f"orchestrator/{writer}", writer=writer)
