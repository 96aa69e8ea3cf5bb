"""Collects the rollouts of a run: submits its tasks, hears their terminal events, writes the result files.

The same code serves a fresh run and a resumed one. Submitting a task again adds nothing, since the first writer of a
subject wins; and the terminal events of the run are read from its first one on, so that the files are written anew
from the log. A rollout that failed may be asked for again (`retry` in the config): its last attempt is in the files,
the ones before stay readable in the log. Called by the `run` command; `rebuild` writes the same files from the log
alone.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Final, NamedTuple

import msgspec
import structlog

from bus import Bus, Conflict
from bus.errors import Unreadable
from components.workers.ends import end_unasked
from contracts.events import Event, Recorded
from contracts.ids import ROOT_CALL, RolloutId, rollout_id
from contracts.rollouts import RolloutRequest
from orchestrator.attempts import Attempt, asked_again, give_up, next_attempt
from orchestrator.requests import request_if_readable
from orchestrator.results import Ending, Outcome, ResultFiles, outcome, read_ending, read_outcome
from orchestrator.revisions import latest_revisions, revise
from orchestrator.settings import RetrySettings
from orchestrator.tasks import MaterializedTask

OnOutcome = Callable[[Outcome], None]
"""Told of each ended rollout, in the order of the log."""

LANES = 256
"""Requests on their way to the log at once."""
ARRIVED = 4_096
"""Terminal events read ahead of the result files."""
READERS = 16
"""Of these, whose endings are being read, or are read and wait for their turn."""
NO_RETRY: Final = RetrySettings()
FLUSH_S = 0.5
"""Seconds between two hand-overs of result lines to the operating system."""

_log = structlog.get_logger("collect")


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
    retry: RetrySettings = NO_RETRY,
) -> None:
    """Runs all tasks to their end, at most `concurrency` unfinished at a time.

    A rollout that failed is asked for again as `retry` says; where anybody has asked for it again, its next attempt is
    awaited. Only the last attempt counts. Cancelling it leaves what has ended in the files; the rest goes on where it
    is when the run is resumed.
    """
    run = _Run(bus, run_id, tasks, concurrency, retry)
    async with asyncio.TaskGroup() as group:
        helpers = [group.create_task(run.lane()) for _ in range(min(LANES, len(tasks)))]
        helpers += [group.create_task(run.follow(partition)) for partition in range(bus.config.partitions)]
        helpers.append(group.create_task(run.read(group)))
        with ResultFiles(output) as files:
            helpers.append(group.create_task(_flush(files)))
            async for done in run.outcomes():
                files.add(done)
                on_outcome(done)
            for helper in helpers:
                helper.cancel()


async def _flush(files: ResultFiles) -> None:
    while True:
        await asyncio.sleep(FLUSH_S)
        files.flush()


class _Ended(NamedTuple):
    """A terminal event, and what it says as soon as that is read."""

    event: Event
    ending: asyncio.Task[Ending]


class _Run:
    """The rollouts of a run, on their way from the request to the outcome."""

    def __init__(
        self, bus: Bus, run_id: str, tasks: Sequence[MaterializedTask], concurrency: int, retry: RetrySettings
    ) -> None:
        self._bus, self._run_id, self._retry = bus, run_id, retry
        self._open = {rollout_id_of(run_id, task): request_of(run_id, task) for task in tasks}
        """What has not ended, asked for or not."""
        self._first, self._further = iter(list(self._open)), deque[tuple[RolloutId, str]]()
        """What is still to be asked for; further attempts, with the event that caused them, come before all others."""
        self._new = asyncio.Event()
        self._room = asyncio.Semaphore(concurrency)
        self._submitted: set[str] = set()
        """Those that have a place until they end."""
        self._arrived: asyncio.Queue[Recorded] = asyncio.Queue(maxsize=ARRIVED)
        self._read: asyncio.Queue[_Ended] = asyncio.Queue(maxsize=READERS)
        self._early: dict[str, _Ended] = {}
        """Ends of further attempts of which nothing is known yet: the attempt before lives in another partition."""

    async def lane(self) -> None:
        """Asks for one rollout after the other, for ever."""
        while True:
            await self._room.acquire()
            rollout, cause = await self._next()
            self._submitted.add(rollout)
            await self._submit(rollout, self._open[rollout], cause)

    async def _next(self) -> tuple[RolloutId, str]:
        while True:
            # of a resumed run, one may be heard to have ended before it is its turn
            while self._further:
                rollout, cause = self._further.popleft()
                if rollout in self._open:
                    return rollout, cause
            for rollout in self._first:
                if rollout in self._open:
                    return rollout, ""
            self._new.clear()
            await self._new.wait()

    async def _submit(self, rollout: RolloutId, request: RolloutRequest, cause: str) -> None:
        bus = self._bus
        event = bus.event(
            type="rollout.requested",
            subject=bus.subjects.request("agents", request.agent, 1, rollout, ROOT_CALL),
            data=msgspec.json.encode(request),
            rolloutid=rollout,
            callkey=ROOT_CALL,
            replyto=bus.subjects.ended(self._run_id, rollout),
            causationid=cause,
            traceparent=f"00-{token_hex(16)}-{token_hex(8)}-01",
        )
        try:
            with suppress(Conflict):  # it is in the log already: this is a resumed run
                await bus.publish(event)
        except Unreadable as held:
            await end_unasked(bus, event, held)

    async def follow(self, partition: int) -> None:
        """Takes in the terminal events of the run, from its first on, as they come."""
        ended = self._bus.subjects.ended_of(partition, self._run_id)
        async for recorded in self._bus.scan(ended, partition=partition, follow=True):
            await self._arrived.put(recorded)

    async def read(self, group: asyncio.TaskGroup) -> None:
        """Begins to read what the arrived events refer to, some ahead of the result files."""
        while True:
            event = (await self._arrived.get()).event
            await self._read.put(_Ended(event, group.create_task(read_ending(self._bus, event))))

    async def outcomes(self) -> AsyncIterator[Outcome]:
        """The outcomes that count, until all rollouts have one."""
        ended: _Ended | None = None
        while self._open:
            if ended is None:
                ended = await self._read.get()
            rollout = RolloutId(ended.event.rolloutid)
            request = self._open.get(rollout)
            if request is None:
                self._early[rollout], ended = ended, None
                continue
            done = outcome(request, ended.event, await ended.ending)
            again = await self._again(done, request)
            del self._open[rollout]
            if again is not None:
                self._open[again[0]] = again[1]
                self._further.append((again[0], ended.event.id))
                self._new.set()
            if rollout in self._submitted:
                self._submitted.remove(rollout)
                self._room.release()
            if again is None:
                yield done
            ended = None if again is None else self._early.pop(again[0], None)

    async def _again(self, done: Outcome, request: RolloutRequest) -> Attempt | None:
        """The next attempt at what failed, if there is one or is to be one."""
        if done.error is None or done.error == "cancelled":
            return None
        if (asked := await asked_again(self._bus, done.rollout_id, request)) is not None:
            return asked
        if self._retry.attempts == 1 or done.error not in self._retry.on:
            return None
        if request.attempt + 1 < self._retry.attempts:
            _log.info("rollout.retried", rollout=done.rollout_id, error=done.error, message=done.message)
            return next_attempt(done.rollout_id, request)
        message = f"failed {request.attempt + 1} times, at last with {done.error}: {done.message}"
        await give_up(self._bus, done.rollout_id, message)
        return None


async def outcomes_in_log(bus: Bus, run_id: str) -> AsyncIterator[Outcome]:
    """The outcomes of a run from the log alone, in the order in which they ended; partition by partition.

    Without the rollouts that failed and were asked for again: their next attempts count. Of one that was scored again
    the latest reward counts.
    """
    for partition in range(bus.config.partitions):
        requests: dict[str, RolloutRequest] = {}
        revised = await latest_revisions(bus, partition, run_id)
        roots = f"{bus.config.namespace}.{partition}.agents.*.*.request.*.{ROOT_CALL}"
        async for recorded in bus.scan(roots, bus.subjects.ended_of(partition, run_id), partition=partition):
            event = recorded.event
            if event.type != "rollout.requested":
                request = requests.pop(event.rolloutid, None)
                if request is None:
                    _log.warning("request_missing", rollout=event.rolloutid, hint="it is not in the log, or unreadable")
                    continue
                if event.type != "rollout.failed" or await asked_again(bus, event.rolloutid, request) is None:
                    done = await read_outcome(bus, request, event)
                    yield revise(done, *revised[event.rolloutid]) if event.rolloutid in revised else done
            elif (
                event.replyto == bus.subjects.ended(run_id, event.rolloutid)
                and (asked := await request_if_readable(bus, event)) is not None
            ):
                requests[event.rolloutid] = asked
