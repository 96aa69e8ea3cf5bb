"""Where does a fork go on, and what comes of it?

Called by `replay fork`. It writes a fork's events into the log of a deployment whose workers run, and waits until the
rollout has ended. Where none runs, one is started for as long as it takes, by `jetgym up` with the run's config, in a
directory of its own: the log of the parent is not touched then. It never writes under the ID of another rollout.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from secrets import choice
from typing import Any, Final, TypeVar

import msgspec

from bus import Bus, LogConfig
from bus.overview import pool_states
from bus.processes import not_outliving
from bus.run_folder import MATERIALIZED, live
from components.printed import printed
from contracts.deployments import RunStarted
from contracts.ids import rollout_id
from contracts.rollouts import RolloutRequest
from replay.errors import CannotFork
from replay.facts import Facts
from replay.fork import Plan
from replay.log_source import open_bus
from replay.rows import Row, end, requested_row

T = TypeVar("T")
Report = Callable[[str], None]
"""Told in a few words what is going on."""

_ALPHABET: Final = "abcdefghjkmnpqrstuvwxyz23456789"
_LOOK_AGAIN_S: Final = 0.1
_STOP_S: Final = 60.0
_SAID: Final = 20
"""Last lines of what a deployment said that did not start."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A fork that is in the log."""

    rollout_id: str
    request: RolloutRequest


def new_run_id() -> str:
    """An ID like `f1129-1612-x7k2`: forks that are made together are a run of their own."""
    return f"f{datetime.now(UTC):%m%d-%H%M}-{''.join(choice(_ALPHABET) for _ in range(4))}"


def asked(plan: Plan, run_id: str, size: int) -> list[Asked]:
    """The forks to make: `size` of them, which differ in their IDs and indices alone."""
    index = plan.parent.request.task_index
    ids = [rollout_id(f"{run_id}-{index:05d}-{number:02d}") for number in range(size)]
    return [Asked(rollout_id=name, request=plan.request(name, run_id, number, size)) for number, name in enumerate(ids)]


async def write(bus: Bus, plan: Plan, fork: Asked, writer: str) -> None:
    """Writes a fork into the log; with its last event it is asked for. Raises `BusError`."""
    now = datetime.now(UTC)
    for event in plan.events(fork.request, fork.rollout_id, bus.subjects, writer, now):
        await bus.publish(event)


async def ended(bus: Bus, fork: Asked, facts: Facts) -> Row:
    """Waits for a fork's end; the row that `list` shows of it."""
    subject = bus.subjects.ended(fork.request.run_id, fork.rollout_id)
    partition = bus.subjects.partition(fork.rollout_id)
    root = f"{bus.config.namespace}.{partition}.agents.*.*.request.{fork.rollout_id}.run"
    requested = await bus.last(root)
    assert requested is not None
    row = requested_row(requested, await bus.fetch_data(requested.event), facts)
    async for recorded in bus.scan(subject, partition=partition, start=requested.seq, follow=True):
        return end(row, recorded, await bus.fetch_data(recorded.event))
    raise CannotFork(f"the log ended before {fork.rollout_id} did")


async def while_live(folder: Path, run_id: str, work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns. Raises `CannotFork` as soon as nothing is live in the directory: the log will not answer."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait([task], timeout=_LOOK_AGAIN_S))[0]:
            if live(folder) is None:
                raise CannotFork(
                    f"the deployment in {folder} ended before the forks of {run_id} did: fork again with --run "
                    f"{folder}, and a deployment of their own is started for them"
                )
        return await task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def check_served(bus: Bus, agent: str) -> None:
    """Raises `CannotFork` where no worker of the agent is there."""
    served = [pool for pool in await pool_states(bus) if (pool.kind, pool.instance) == ("agents", agent)]
    if not served or not served[0].served:
        raise CannotFork(
            f"nobody serves the agent {agent!r} there: start workers with `jetgym up CONFIG --url …`, or give --config "
            f"CONFIG to have the fork go on in a deployment of its own"
        )


@asynccontextmanager
async def own_deployment(
    config: Path, overrides: Sequence[str], folder: Path, forks: Sequence[Asked], *, writer: str, report: Report
) -> AsyncIterator[Bus]:
    """Starts a deployment for the forks, and stops it; its directory is then that of a finished run.

    Raises `CannotFork` with what it said where it does not start.
    """
    async with AsyncExitStack() as stack:
        report("starting a deployment")
        up = await asyncio.create_subprocess_exec(
            *not_outliving(_jetgym("up", str(config), *overrides, "--output", str(folder))),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said = asyncio.create_task(_read(up.stdout))
        stack.push_async_callback(_stop, up, said)
        facts = await _ready(folder, up, said)
        _write_inputs(folder, forks)
        log = LogConfig(namespace=facts["namespace"])
        bus = await stack.enter_async_context(open_bus(facts["url"], log, writer))
        await _record_run(bus, folder, forks)
        yield bus


async def write_results(folder: Path, run_id: str) -> None:
    """Has the result files of forks written, as a run has them. Raises `CannotFork`."""
    rebuild = await asyncio.create_subprocess_exec(
        *_jetgym("rebuild", str(folder), "--run", run_id),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await rebuild.communicate()
    if rebuild.returncode:
        raise CannotFork(f"the forks have ended, but their result files could not be written: {said.decode().strip()}")


def _jetgym(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "orchestrator", *arguments]


async def _ready(folder: Path, up: asyncio.subprocess.Process, said: "asyncio.Task[list[str]]") -> dict[str, str]:
    while True:
        facts = live(folder) or {}
        if {"url", "namespace"} <= facts.keys():
            return facts
        if up.returncode is not None:
            lines = "\n".join((await said)[-_SAID:])
            raise CannotFork(f"no deployment could be started from this config:\n{lines}")
        await asyncio.sleep(_LOOK_AGAIN_S)


async def _read(stream: asyncio.StreamReader | None) -> list[str]:
    lines: list[str] = []
    assert stream is not None
    async for line in printed(stream):
        lines = [*lines[-_SAID:], line]
    return lines


async def _stop(up: asyncio.subprocess.Process, said: "asyncio.Task[list[str]]") -> None:
    with suppress(ProcessLookupError):
        up.send_signal(2)
    try:
        async with asyncio.timeout(_STOP_S):
            await up.wait()
    except TimeoutError:
        up.kill()
        await up.wait()
    await said


async def _record_run(bus: Bus, folder: Path, forks: Sequence[Asked]) -> None:
    """Says in the log of their own that the forks are a run."""
    run_id = forks[0].request.run_id
    digest = sha256((folder / MATERIALIZED).read_bytes()).hexdigest()
    started = RunStarted(run_id=run_id, config={}, rollouts=len(forks), skipped_lines=0, inputs_sha256=digest)
    subject = bus.subjects.deployment("run", run_id)
    await bus.publish(bus.event("deployment.run", subject, msgspec.json.encode(started)))


def _write_inputs(folder: Path, forks: Sequence[Asked]) -> None:
    lines = []
    for fork in forks:
        request = fork.request
        place = {
            "rollout_id": fork.rollout_id,
            "task_index": request.task_index,
            "rollout_index": request.rollout_index,
            "agent": request.agent,
        }
        task = msgspec.json.decode(request.task, type=dict[str, msgspec.Raw])
        lines.append(msgspec.json.encode({**task, **place}) + b"\n")
    partial = (folder / MATERIALIZED).with_suffix(".partial")
    partial.write_bytes(b"".join(lines))
    partial.rename(folder / MATERIALIZED)
