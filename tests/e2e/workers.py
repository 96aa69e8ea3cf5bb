"""Real workers in the test's own process, each with a connection of its own, and what the log says of their work.

For tests of what the workers do together. What becomes of processes that are killed is in `test_kills`.
"""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Self, cast

import msgspec

from bus import Bus, Conflict, LogConfig, Unreachable
from components.loading import add_roots, load
from components.workers.agent import AgentWorker
from components.workers.contexts import response_of
from components.workers.execution import execution_of
from components.workers.model import ModelWorker
from components.workers.policies import Policies
from components.workers.resources import ResourcesWorker
from components.workers.spec import WorkerSpec
from contracts.events import Event, Kind, Recorded
from contracts.rollouts import RolloutFailure, RolloutRequest, RolloutResult
from replay import Trajectory
from replay.engine import departure_of

PROJECT = Path(__file__).parent / "project"
PATIENCE_S = 60.0
RUN = "run"

add_roots([PROJECT])


@dataclass(frozen=True)
class Instance:
    """A component instance of a test's deployment."""

    kind: Kind
    implementation: str
    config: Mapping[str, Any] = field(default_factory=dict)
    slots: int = 1


def start_process(
    url: str, log: LogConfig, name: str, instance: Instance, *, drain_s: float = PATIENCE_S, data_mb: int | None = None
) -> subprocess.Popen[bytes]:
    """A worker of an instance in a process of its own, which says on its output when it serves.

    With `data_mb` the system allows it no more data.
    """
    spec = WorkerSpec(
        kind=instance.kind,
        instance=name,
        implementation=instance.implementation,
        config=dict(instance.config),
        log=log.model_dump(),
        url=url,
        slots=tuple(range(instance.slots)),
        drain_s=drain_s,
        roots=(str(PROJECT),),
    )
    command = [sys.executable, "-P", "-m", "components.workers"]
    if data_mb is not None:
        command = ["sh", "-c", f'ulimit -d {data_mb * 1000} && exec "$@"', "sh", *command]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, **pipes)
    assert process.stdin is not None
    with process.stdin:
        process.stdin.write(msgspec.json.encode(spec))
    return process


@asynccontextmanager
async def kept(
    url: str,
    log: LogConfig,
    name: str,
    instance: Instance,
    workers: int,
    *,
    drain_s: float = PATIENCE_S,
    data_mb: int | None = None,
) -> AsyncIterator[list[int]]:
    """So many processes of an instance, each started again as often as it ends; the exit codes of those that ended."""
    codes: list[int] = []
    running: set[subprocess.Popen[bytes]] = set()

    async def keep() -> None:
        while True:
            process = start_process(url, log, name, instance, drain_s=drain_s, data_mb=data_mb)
            running.add(process)
            assert process.stdout is not None
            with process.stdout as said:
                await asyncio.to_thread(said.read)
            codes.append(process.wait())
            running.discard(process)

    tasks = [asyncio.create_task(keep()) for _ in range(workers)]
    try:
        yield codes
    finally:
        for process in running:
            process.kill()
            process.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Mortal:
    """A bus that fails at one publish: its process dies, and nothing it does later has any effect, or the log is away.

    `fails_at` is n for a failure when the n-th publish is in the log already, n - 0.5 for one before it.
    """

    def __init__(self, bus: Bus, fails_at: float, *, dies: bool) -> None:
        self._bus, self._fails_at, self._dies = bus, fails_at, dies
        self.published = 0
        self.stored: set[str] = set()
        """What it published before it failed, `<rollout>/<call key>`."""
        self.failed = asyncio.Event()
        self.served: Any = None
        """The worker on it."""
        self._held: set[asyncio.Task[Any]] = set()
        """What waits for ever since it died."""
        self._buried = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    def post_at_once(self, event: Event) -> None:
        """Never: it would not be seen here what is published."""

    async def post(self, event: Event) -> asyncio.Future[int]:
        return asyncio.ensure_future(self.publish(event))

    async def publish(self, event: Event) -> int:
        self.published += 1
        number = self.published
        if self._fails_at < number:
            await self._fail()
        seq = await self._bus.publish(event)
        if not self.failed.is_set():
            self.stored.add(f"{event.rolloutid}/{event.callkey}")
        if self._fails_at <= number:
            await self._fail()
        return seq

    async def _fail(self) -> None:
        failed_before = self.failed.is_set()
        self.failed.set()
        if self._dies and not self._buried:
            await self._bus._connection.close()
            task = asyncio.current_task()
            assert task is not None
            self._held.add(task)
            await asyncio.get_running_loop().create_future()
        elif not failed_before:
            raise Unreachable("the log is away")

    async def bury(self) -> None:
        """Ends what its death has left waiting, as the end of a process does."""
        self._buried = True
        tasks = {*self._held, *getattr(self.served, "_tasks", ())}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Deployment:
    """A log, the instances that tests put on it, and their workers."""

    def __init__(self, url: str, config: LogConfig, instances: Mapping[str, Instance]) -> None:
        self._url, self._config, self._instances = url, config, instances
        self._running: list[tuple[asyncio.Task[None], Bus]] = []
        self._mortals: list[Mortal] = []
        self._asked: dict[str, RolloutRequest] = {}
        self.bus: Bus

    async def __aenter__(self) -> Self:
        self.bus = await Bus.connect(self._url, self._config, name="orchestrator/test", writer="test")
        await self.bus.ensure_log()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task, bus in self._running:
            await bus.close(0.1)
            task.cancel()
        await asyncio.gather(*(task for task, _ in self._running), return_exceptions=True)
        for mortal in self._mortals:
            await mortal.bury()
            if isinstance(mortal.served, ModelWorker):
                await mortal.served._model.stop()
        await self.bus.close(0.1)

    async def start(self, *names: str) -> None:
        """Starts one worker of each of these instances."""
        for name in names:
            await self.start_one(name)

    async def start_one(
        self,
        name: str,
        *,
        worker: str = "",
        slots: tuple[int, ...] | None = None,
        fails_at: float = inf,
        dies: bool = True,
    ) -> Mortal:
        """Starts one worker of an instance; returns its bus."""
        instance, identifier = self._instances[name], worker or f"{name}-0"
        bus = await Bus.connect(self._url, self._config, name=f"{instance.kind}/{name}/{identifier}", writer=identifier)
        mortal = Mortal(bus, fails_at, dies=dies)
        mortal.served = self._worker(name, cast("Bus", mortal), identifier, slots)
        await mortal.served.start()
        self._mortals.append(mortal)
        self._running.append((asyncio.create_task(mortal.served.serve()), bus))
        return mortal

    @property
    def policies(self) -> list[Policies]:
        """What its model workers know of their policies."""
        return [mortal.served._policies for mortal in self._mortals if isinstance(mortal.served, ModelWorker)]

    def _worker(self, name: str, bus: Bus, identifier: str, slots: tuple[int, ...] | None) -> Any:
        instance = self._instances[name]
        component: Any = load(instance.kind, instance.implementation)
        config = component.config_class().model_validate(instance.config)
        spec = WorkerSpec(
            kind=instance.kind,
            instance=name,
            implementation=instance.implementation,
            config=dict(instance.config),
            log=self._config.model_dump(),
            url=self._url,
            slots=slots or tuple(range(instance.slots)),
            slots_of={other: each.slots for other, each in self._instances.items()},
        )
        if instance.kind == "agents":
            return AgentWorker(bus, identifier, component, config, spec)
        return (ModelWorker if instance.kind == "models" else ResourcesWorker)(bus, component(config), spec)

    # --- rollouts ----------------------------------------------------------------------------------------------

    async def ask(
        self,
        rollout: str,
        task: Mapping[str, Any],
        agent: str = "puppet",
        run: str = RUN,
        attempt: int = 0,
        *,
        version: int | None = None,
    ) -> None:
        """Requests a rollout; `version` is the trainer's."""
        line = msgspec.Raw(msgspec.json.encode({"responses_create_params": {"input": "Go."}, **task}))
        request = RolloutRequest(task=line, agent=agent, run_id=run, attempt=attempt, policy_version=version)
        self._asked[rollout] = request
        await self.ask_with(rollout, msgspec.json.encode(request), agent=agent, run=run)

    async def ask_with(self, rollout: str, data: bytes, agent: str = "puppet", run: str = RUN) -> None:
        """Requests a rollout with data of any kind."""
        event = self.bus.event(
            "rollout.requested",
            self.bus.subjects.request("agents", agent, 1, rollout, "run"),
            data,
            rolloutid=rollout,
            callkey="run",
            replyto=self.bus.subjects.ended(run, rollout),
        )
        try:
            await self.bus.publish(event)
        except Conflict:
            raise AssertionError(f"{rollout} was asked for already") from None

    async def end(self, rollout: str, run: str = RUN) -> RolloutResult | RolloutFailure:
        """How the rollout ended, when it has."""
        recorded = await self.until(self.bus.subjects.ended(run, rollout))
        data = await self.bus.fetch_data(recorded.event)
        if recorded.event.type == "rollout.completed":
            result = msgspec.json.decode(data, type=RolloutResult)
            return msgspec.structs.replace(result, response=await response_of(self.bus, rollout, result))
        return msgspec.json.decode(data, type=RolloutFailure)

    async def reward(self, rollout: str) -> float:
        """The reward of a rollout that completes."""
        found = await self.end(rollout)
        assert isinstance(found, RolloutResult), found
        return found.reward

    async def failure(self, rollout: str) -> RolloutFailure:
        """The failure of a rollout that fails. E9: no failure has a reward."""
        found = await self.end(rollout)
        assert isinstance(found, RolloutFailure), found
        return found

    async def until(self, subject: str) -> Recorded:
        """The newest event under a subject, when there is one."""
        async with asyncio.timeout(PATIENCE_S):
            while (found := await self.bus.last(subject)) is None:  # noqa: ASYNC110 - the log tells nobody
                await asyncio.sleep(0.02)
        return found

    async def replied(self, rollout: str, key: str) -> Any:
        """The data of the reply to a call."""
        recorded = await self.until(self.bus.subjects.reply("*", rollout, key))
        return msgspec.json.decode(await self.bus.fetch_data(recorded.event))

    async def check(self, rollouts: Iterable[str]) -> None:
        """E2, E7: each rollout has one terminal event, and its code does again what is recorded."""
        for rollout in rollouts:
            events = await self.bus.history(rollout)
            ended = [
                entry for entry in events if entry.event.type.startswith("rollout.") and ".ended." in entry.subject
            ]
            assert len(ended) == 1
            blobs = {
                entry.event.dataref: await self.bus.fetch_data(entry.event) for entry in events if entry.event.dataref
            }
            trajectory = Trajectory(rollout, events, blobs)
            for run in trajectory.executions():
                instance = self._instances[run.agent]
                agent: Any = load("agents", instance.implementation)
                config = agent.config_class().model_validate(instance.config)
                assert departure_of(trajectory, run, agent, config) is None


__all__ = ["PROJECT", "RUN", "Deployment", "Instance", "Mortal", "execution_of", "start_process"]
