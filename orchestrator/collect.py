"""Collects the rollouts of a run: submits its tasks, hears their terminal events, writes the result files.

The same code serves a fresh run and a resumed one. Submitting a task again adds nothing, since the first writer of a
subject wins; and the terminal events of the run are read from its first one on, so that the files are written anew
from the log. Called by the `run` command; `rebuild` writes the same files from the log alone.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

import msgspec
import structlog

from bus import Bus, Conflict
from contracts.events import Recorded
from contracts.ids import ROOT_CALL, RolloutId, rollout_id
from contracts.rollouts import RolloutRequest
from orchestrator.attempts import asked_again
from orchestrator.results import Outcome, ResultFiles, read_outcome
from orchestrator.tasks import MaterializedTask

OnOutcome = Callable[[Outcome], None]
"""Told of each ended rollout, in the order of the log."""

LANES = 256
"""Requests on their way to the log at once."""
ARRIVED = 4_096
"""Terminal events read ahead of the result files."""
FLUSH_S = 0.5
"""Seconds between two hand-overs of result lines to the operating system."""

_log = structlog.get_logger("collect")
_REQUEST = msgspec.json.Decoder(RolloutRequest)


def rollout_id_of(run_id: str, task: MaterializedTask) -> RolloutId:
    """The ID of a rollout follows from run, task and index, so that submitting again names the same rollout."""
    return rollout_id(f"{run_id}-{task.task_index:05d}-{task.rollout_index:02d}")


def request_of(run_id: str, task: MaterializedTask) -> RolloutRequest:
    """What the agent is asked."""
    return RolloutRequest(
        task=msgspec.Raw(task.line),
        agent=task.agent,
        run_id=run_id,
        task_index=task.task_index,
        rollout_index=task.rollout_index,
        sessionless=task.sessionless,
    )


async def collect(
    bus: Bus,
    tasks: Sequence[MaterializedTask],
    *,
    run_id: str,
    output: Path,
    concurrency: int,
    on_outcome: OnOutcome,
) -> None:
    """Runs all tasks to their end, at most `concurrency` unfinished at a time, and awaits what was asked again of them.

    Cancelling it leaves what has ended in the files; the rest goes on where it is when the run is resumed.
    """
    requests = {rollout_id_of(run_id, task): request_of(run_id, task) for task in tasks}
    asked = await asked_again(bus, run_id)
    room = asyncio.Semaphore(concurrency)
    submitted: set[str] = set()
    ended: set[str] = set()
    waiting = iter(requests.items())

    async def lane() -> None:
        for rollout, request in waiting:
            await room.acquire()
            if rollout in ended:  # of a resumed run, heard before it was its turn
                room.release()
                continue
            submitted.add(rollout)
            await _submit(bus, run_id, rollout, request)

    def hear(done: Outcome) -> None:
        ended.add(done.rollout_id)
        if done.rollout_id in submitted:
            room.release()
        on_outcome(done)

    arrived: asyncio.Queue[Recorded] = asyncio.Queue(maxsize=ARRIVED)
    async with asyncio.TaskGroup() as group:
        helpers = [group.create_task(lane()) for _ in range(min(LANES, len(requests)))]
        helpers += [
            group.create_task(_follow(bus, run_id, partition, arrived)) for partition in range(bus.config.partitions)
        ]
        await _hear(bus, requests | asked, arrived, output, hear)
        for helper in helpers:
            helper.cancel()


async def _submit(bus: Bus, run_id: str, rollout: RolloutId, request: RolloutRequest) -> None:
    event = bus.event(
        type="rollout.requested",
        subject=bus.subjects.request("agents", request.agent, 1, rollout, ROOT_CALL),
        data=msgspec.json.encode(request),
        rolloutid=rollout,
        callkey=ROOT_CALL,
        replyto=bus.subjects.ended(run_id, rollout),
        traceparent=f"00-{token_hex(16)}-{token_hex(8)}-01",
    )
    with suppress(Conflict):  # it is in the log already: this is a resumed run
        await bus.publish(event)


async def _hear(
    bus: Bus,
    requests: Mapping[RolloutId, RolloutRequest],
    arrived: asyncio.Queue[Recorded],
    output: Path,
    hear: OnOutcome,
) -> None:
    """Writes and tells every terminal event until all rollouts asked for have one."""
    open_rollouts = set(requests)
    flushed = time.monotonic()
    with ResultFiles(output) as files:
        while open_rollouts:
            recorded = await arrived.get()
            rollout = RolloutId(recorded.event.rolloutid)
            if rollout not in open_rollouts:
                continue
            open_rollouts.remove(rollout)
            done = await read_outcome(bus, requests[rollout], recorded.event)
            files.add(done)
            hear(done)
            if time.monotonic() - flushed > FLUSH_S:
                files.flush()
                flushed = time.monotonic()


async def _follow(bus: Bus, run_id: str, partition: int, arrived: asyncio.Queue[Recorded]) -> None:
    """Puts the terminal events of a run into `arrived`, from its first on, as they come."""
    async for recorded in bus.scan(bus.subjects.ended_of(partition, run_id), partition=partition, follow=True):
        await arrived.put(recorded)


async def outcomes_in_log(bus: Bus, run_id: str) -> AsyncIterator[Outcome]:
    """The ended rollouts of a run from the log alone, in the order in which they ended; partition by partition."""
    for partition in range(bus.config.partitions):
        requests: dict[str, RolloutRequest] = {}
        asked = f"{bus.config.namespace}.{partition}.agents.*.*.request.*.{ROOT_CALL}"
        async for recorded in bus.scan(asked, bus.subjects.ended_of(partition, run_id), partition=partition):
            event = recorded.event
            if event.type != "rollout.requested":
                request = requests.pop(event.rolloutid, None)
                if request is None:
                    _log.warning("request_missing", rollout=event.rolloutid, hint="the log has forgotten it: max_age_s")
                    continue
                yield await read_outcome(bus, request, event)
            elif event.replyto == bus.subjects.ended(run_id, event.rolloutid):
                requests[event.rolloutid] = _REQUEST.decode(await bus.fetch_data(event))
