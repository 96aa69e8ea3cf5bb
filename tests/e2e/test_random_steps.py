"""Rollouts are asked for, end, fail, hang and are cancelled, and workers are killed, at random: all comes out even."""

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bus import Bus, LogConfig
from bus.overview import overview, pool_states
from components.workers.cancellations import cancel, cancel_run
from orchestrator.audit import audit
from tests.e2e.workers import Deployment, Instance, Mortal

STEPS = 10_000
USERS = 50
TEAMS = 5
"""The users of a team work on one run, until one of them cancels it; then on another one."""
STILL_S = 60.0
"""Seconds in which something is added to the log, on however busy a machine, unless something is waited for in vain."""

PLANS: dict[str, list[list[Any]]] = {
    "finish": [
        [["add", 1]],
        [["model"], ["adds", 1, 2], ["model"]],
        [["ask", {"plan": [["model"], ["add", 1]], "expected": 1}]],
        [["parallel", [["model"]], [["add", 2]]], ["sleep", 0.01]],
    ],
    "fail": [
        [["raise", "no idea"]],
        [["model", "away"]],
        [["ask", {"plan": [["model", "away"]]}]],
        [["tool", "add_slowly", {"count": 1, "seconds": 0.01}], ["return", "nan"]],
    ],
    "hang": [
        [["model", "hanging"]],
        [["sleep", 600]],
        [["tool", "add_slowly", {"count": 1, "seconds": 600}]],
        [["ask", {"plan": [["model", "hanging"]]}]],
        [["parallel", [["model", "hanging"]], [["sleep", 600]], [["ask", {"plan": [["model", "hanging"]]}]]]],
    ],
}
WEIGHTS = {"finish": 30, "fail": 12, "hang": 12, "cancel": 25, "await": 20, "cancel run": 0.08, "kill": 0.1}
SHOWN = 5
"""So many rollouts that do not come to an end are told of."""
POOLS = ("policy", "hanging", "away", "stage", "puppet", "helper")


def instances(folder: Path) -> dict[str, Instance]:
    shared = {"model": "policy", "resources": "stage"}
    notes = {"notes": str(folder / "notes")}
    return {
        "policy": Instance("models", "noting", {**notes, "latency": {"distribution": "exponential", "mean_s": 0.01}}),
        "hanging": Instance("models", "noting", {**notes, "faults": [{"kind": "hang", "rate": 1.0}]}),
        "away": Instance("models", "noting", {**notes, "turns": [{"error": "unavailable"}]}),
        "stage": Instance("resources", "stage", {"tool_deadline_s": 600.0}),
        "helper": Instance("agents", "puppet", shared),
        "puppet": Instance("agents", "puppet", {**shared, "helper": "helper"}),
    }


class Ends:
    """How the rollouts of all runs end: one reader for all users, since to ask for each one keeps the server busy."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._ended: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def follow(self, partition: int) -> None:
        """Hears of each end in a partition; never returns."""
        subject = self._bus.subjects.ended_of(partition, "*")
        async for recorded in self._bus.scan(subject, partition=partition, follow=True):
            self._ended[recorded.event.rolloutid].set()

    async def of(self, rollout: str) -> None:
        """Returns when it has ended."""
        await self._ended[rollout].wait()


class User:
    """Takes steps at random, and knows what each of its rollouts may end as."""

    def __init__(
        self,
        deployment: Deployment,
        ends: Ends,
        workers: dict[str, Mortal],
        *,
        number: int,
        runs: list[str],
        chance: random.Random,
    ) -> None:
        self._deployment, self._ends, self._workers = deployment, ends, workers
        self._number, self._chance = number, chance
        self._runs = runs
        """Of the team; the last one is the present one."""
        self.steps: Counter[str] = Counter()
        self.may: dict[str, set[str]] = {}
        """By rollout."""
        self._mine: list[tuple[str, str]] = []
        """Runs and rollouts."""

    async def go(self, steps: int) -> None:
        for _ in range(steps):
            (what,) = self._chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
            self.steps[what] += 1
            if what in PLANS:
                await self._ask(what)
            else:
                await getattr(self, f"_{what.replace(' ', '_')}")()

    async def _ask(self, what: str) -> None:
        run = self._runs[-1]
        rollout = f"{run}-{self._number}-{len(self._mine)}"
        self.may[rollout] = {{"finish": "completed", "fail": "failed", "hang": "cancelled"}[what], "cancelled"}
        self._mine.append((run, rollout))
        task = {"plan": self._chance.choice(PLANS[what]), "verdict": "value"}
        await self._deployment.ask(rollout, task, run=run)

    async def _cancel(self) -> None:
        if self._mine:
            run, rollout = self._chance.choice(self._mine)
            await cancel(self._deployment.bus, run, rollout, "at random")

    async def _await(self) -> None:
        if ending := [each for each in self._mine if self.may[each[1]] != {"cancelled"}]:
            await self._ends.of(self._chance.choice(ending)[1])

    async def _cancel_run(self) -> None:
        run = self._runs[-1]
        self._runs.append(f"{run.partition('-')[0]}-{len(self._runs)}")
        await cancel_run(self._deployment.bus, run, "at random")

    async def _kill(self) -> None:
        """The worker dies at its next publish; another one takes its place."""
        pool = self._chance.choice(POOLS)
        dying = self._workers[pool]
        self._workers[pool] = await self._deployment.start_one(
            pool, worker=f"{pool}-{self._number}-{self.steps['kill']}"
        )
        dying._fails_at = dying.published + 0.5


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [7])
async def test_after_10_000_random_steps_every_rollout_has_one_end_and_nothing_is_held(
    server: str, config: LogConfig, tmp_path: Path, seed: int
) -> None:
    """E7, E12: the audit of each run balances, and every pool and worker is as it was before the first step."""
    log = config.model_copy(update={"partitions": 2, "ack_wait_s": 3.0})
    async with Deployment(server, log, instances(tmp_path)) as deployment:
        bus, ends = deployment.bus, Ends(deployment.bus)
        workers = {pool: await deployment.start_one(pool, worker=f"{pool}-first") for pool in POOLS}
        teams = [[f"team{number}-0"] for number in range(TEAMS)]
        users = [
            User(
                deployment,
                ends,
                workers,
                number=number,
                runs=teams[number % TEAMS],
                chance=random.Random(seed + number),
            )
            for number in range(USERS)
        ]
        async with asyncio.TaskGroup() as group:
            meanwhile = [group.create_task(each) for each in (ends.follow(0), ends.follow(1), still(bus))]
            await asyncio.gather(*(user.go(STEPS // USERS) for user in users))
            for runs in teams:
                await cancel_run(bus, runs[-1], "the end")
            while (state := await overview(bus)).ended < state.requested:  # noqa: ASYNC110 - the log tells nobody
                await asyncio.sleep(0.1)
            while any(pool.held or pool.waiting for pool in await pool_states(bus)):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            for task in meanwhile:
                task.cancel()
        assert [name for name, worker in workers.items() if worker.served.in_progress] == []
        steps = sum((user.steps for user in users), Counter[str]())
        assert steps.total() == STEPS
        assert set(steps) == set(WEIGHTS)
        ended = Counter[str]()
        for run in (run for runs in teams for run in runs):
            found = await audit(bus, run)
            assert found.balanced, found.unbalanced
            ended += Counter(completed=found.completed, failed=found.failed, cancelled=found.cancelled)
        assert ended.total() == sum(len(user.may) for user in users) == state.requested
        may = {rollout: outcomes for user in users for rollout, outcomes in user.may.items()}
        for partition in range(2):
            async for recorded in bus.scan(bus.subjects.ended_of(partition, "*"), partition=partition):
                event = recorded.event
                assert event.type.removeprefix("rollout.") in may[event.rolloutid], (event.rolloutid, event.data)
        assert min(ended["completed"], ended["failed"], ended["cancelled"]) > STEPS // 50


async def still(bus: Bus) -> None:
    """Fails when nothing is added to the log any more: somebody waits for ever."""
    before = -1
    while (now := (await overview(bus)).events) > before:
        before = now
        await asyncio.sleep(STILL_S)
    raise AssertionError("\n".join([line async for line in left_over(bus)]))


async def left_over(bus: Bus) -> AsyncIterator[str]:
    """What the pools hold, and the history of some rollouts with a request that has no reply."""
    for pool in await pool_states(bus):
        yield str(pool)
    shown = 0
    for partition in range(2):
        async for recorded in bus.scan(f"{bus.config.namespace}.{partition}.*.*.*.request.>", partition=partition):
            request = recorded.event
            if shown == SHOWN or request.type == "timer.requested" or await bus.last(request.replyto) is not None:
                continue
            shown += 1
            yield f"{request.subject} has no reply:"
            for entry in await bus.history(request.rolloutid):
                yield f"  {entry.seq} {entry.event.time} {entry.event.type} {entry.subject} {entry.event.source}"
