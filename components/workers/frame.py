"""The frame of every worker process: load the component, connect, serve, report health, drain.

One frame for the three kinds. It owns the process's signals and log; what is served is in `agent`, `model` and
`resources`.
"""

import asyncio
import os
import platform
import resource
import signal
import socket
import sys
import time
from collections import deque
from importlib.metadata import PackageNotFoundError, version
from secrets import token_hex
from typing import Any, Protocol

import msgspec
import structlog

from bus import Bus, LogConfig
from components.agents.base import Agent
from components.errors import ComponentError
from components.loading import add_roots, digest, load
from components.models.base import Model
from components.resources.base import Resources
from components.workers import logs, memory
from components.workers.agent import AgentWorker
from components.workers.exits import GROWN, SAID
from components.workers.garbage import collect_garbage
from components.workers.model import ModelWorker
from components.workers.resources import ResourcesWorker
from components.workers.spec import WorkerSpec
from components.workers.stops import say_stopping
from components.workers.watchdog import watch
from contracts.deployments import WorkerStarted

HEALTH_S = 10.0
"""Seconds between two health lines in the log."""
_LAG_EVERY_S = 0.1
END_S = 10.0
"""Seconds that a worker may take to end, beside those that it gets to finish what it holds."""


class Server(Protocol):
    """What the frame runs: one of the three kinds of worker."""

    @property
    def in_progress(self) -> int:
        """How much the worker holds."""

    async def start(self) -> None:
        """Makes the component ready to serve."""

    async def serve(self) -> None:
        """Serves until `drain`."""

    async def drain(self, seconds: float) -> None:
        """Stops taking, finishes or gives back what is held."""


class Frame:
    """One worker process from start to exit code."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self.worker = f"{spec.instance[:40]}-{spec.worker_index}-{token_hex(3)}"
        logs.configure(self.worker, spec.kind, spec.instance)
        self._log = structlog.get_logger()
        self._stop = asyncio.Event()
        self._memory_mb: int | None = spec.config.get("pool", {}).get("memory_mb")
        self._empty = 0
        """Bytes that it took before its first call."""
        self._code = 0
        self._lags: deque[float] = deque(maxlen=int(60 / _LAG_EVERY_S))

    async def run(self) -> int:
        """Serves until told to stop; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told_to_stop)
        spec = self.spec
        add_roots(spec.roots)
        bus = await Bus.connect(
            spec.url,
            LogConfig.model_validate(spec.log),
            name=f"{spec.kind}/{spec.instance}/{self.worker}",
            writer=self.worker,
        )
        try:
            await bus.ensure_log()  # a worker on another machine may be the first to come
            server = self._server(bus)
            if await self._started(server):
                self._check_memory()
                await self._introduce(bus)
                await self._serve(bus, server)
        finally:
            await bus.close()
        return self._code

    def _told_to_stop(self) -> None:
        """Stops politely; the kernel sees to it that it ends, since whoever could kill it may be dead itself."""
        self._stop.set()
        signal.setitimer(signal.ITIMER_REAL, self.spec.drain_s + END_S)

    def _server(self, bus: Bus) -> Server:
        spec = self.spec
        component = load(spec.kind, spec.implementation)
        if issubclass(component, Agent):
            return AgentWorker(bus, self.worker, component, component.config_class().model_validate(spec.config), spec)
        if issubclass(component, Model):
            return ModelWorker(bus, component(component.config_class().model_validate(spec.config)), spec)
        if issubclass(component, Resources):
            return ResourcesWorker(bus, component(component.config_class().model_validate(spec.config)), spec)
        raise TypeError(f"{component} is no component")

    async def _started(self, server: Server) -> bool:
        """Whether it serves; False if the process was told to stop before it did, while it loads weights perhaps."""
        starting = asyncio.create_task(server.start())
        stopping = asyncio.create_task(self._stop.wait())
        done, rest = await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()
        if rest:
            await asyncio.wait(rest)
        if starting in done:
            await starting
        return starting in done

    async def _introduce(self, bus: Bus) -> None:
        """Says in the log what runs here."""
        spec = self.spec
        component = load(spec.kind, spec.implementation)
        started = WorkerStarted(
            worker=self.worker,
            kind=spec.kind,
            instance=spec.instance,
            implementation=spec.implementation,
            version=str(getattr(component, "version", "")),
            digest=digest(spec.kind, spec.implementation),
            python=".".join(platform.python_version_tuple()[:2]),
            jetgym=jetgym_version(),
            host=socket.gethostname(),
            pid=os.getpid(),
        )
        subject = bus.subjects.deployment("worker", self.worker)
        await bus.publish(bus.event(type="deployment.worker", subject=subject, data=msgspec.json.encode(started)))

    async def _serve(self, bus: Bus, server: Server) -> None:
        serving = asyncio.create_task(server.serve())
        ack_wait_s = LogConfig.model_validate(self.spec.log).ack_wait_s
        watches = [
            asyncio.create_task(watch(2 * ack_wait_s)),
            asyncio.create_task(collect_garbage()),
            asyncio.create_task(self._watch_lag()),
            asyncio.create_task(self._report(server)),
        ]
        growing = asyncio.create_task(self._grown())
        stopping = asyncio.create_task(self._stop.wait())
        sys.stdout.write(msgspec.json.encode({"ready": True, "worker": self.worker}).decode() + "\n")
        sys.stdout.flush()
        self._log.info("worker.ready")
        await asyncio.wait((serving, stopping, growing), return_when=asyncio.FIRST_COMPLETED)
        self._log.info("worker.draining", in_progress=server.in_progress)
        if self._stop.is_set() or growing.done():
            await say_stopping(bus, self.worker, self.spec.kind, self.spec.instance)
        if growing.done() and not self._stop.is_set():
            self._code = GROWN
            await self._finish(server, stopping)
        else:
            await server.drain(self.spec.drain_s)
        for task in (*watches, growing, stopping):
            task.cancel()
        await serving
        self._log.info("worker.stopped")

    def _check_memory(self) -> None:
        self._empty = memory.in_use()
        if self._memory_mb is None:
            return
        most = self._memory_mb * memory.MB
        if self._empty >= most:
            raise ComponentError(
                f"a worker of {self.spec.instance} takes {self._empty // memory.MB} MB of memory before its first "
                f"call, and its pool.memory_mb is {self._memory_mb}: give it more"
            )
        if (allowed := memory.refuse_beyond(most)) < most:
            raise ComponentError(
                f"the pool.memory_mb of {self.spec.instance} is {self._memory_mb}, and the system allows a process "
                f"{allowed // memory.MB} MB of data (ulimit -d): raise that limit, or lower the bound below it"
            )

    async def _grown(self) -> None:
        """Returns when the process takes more memory than it may."""
        if self._memory_mb is None:
            await asyncio.Event().wait()
            return
        most, started = self._memory_mb * memory.MB, time.monotonic()
        used = await memory.grown(most)
        told = memory.growth(used, most, self._empty, time.monotonic() - started)
        self._log.warning(SAID[GROWN], message=told, used_mb=used // memory.MB, memory_mb=self._memory_mb)

    async def _finish(self, server: Server, stopping: asyncio.Task[Any]) -> None:
        """Ends with what is in progress, however long that takes: given back, it would make another worker grow."""
        finishing = asyncio.create_task(server.drain(memory.FINISH_S))
        await asyncio.wait((finishing, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not finishing.done():  # told to stop meanwhile
            finishing.cancel()
            await server.drain(self.spec.drain_s)

    async def _watch_lag(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(_LAG_EVERY_S)
            self._lags.append(loop.time() - before - _LAG_EVERY_S)

    async def _report(self, server: Server) -> None:
        while True:
            await asyncio.sleep(HEALTH_S)
            lags = sorted(self._lags)
            self._log.info(
                "worker.health",
                in_progress=server.in_progress,
                loop_lag_p99_ms=round(1000 * lags[int(len(lags) * 0.99)], 1) if lags else 0.0,
                loop_lag_of_s=round(len(lags) * _LAG_EVERY_S),
                peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            )


def jetgym_version() -> str:
    """The installed version of JetGym."""
    try:
        return version("jetgym")
    except PackageNotFoundError:
        return "0"
