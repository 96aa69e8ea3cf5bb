"""Who has a rollout: what comes while it is adopted, two workers that both think so, and partings."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bus import EmbeddedServer, LogConfig
from components.workers.deadlines import LOOK_S
from components.workers.stops import say_stopping
from contracts.events import Event, Recorded
from contracts.ids import slot_of
from contracts.rollouts import RolloutResult, RolloutStats
from tests.e2e.workers import PATIENCE_S, Deployment, Instance, Mortal

SHARED = {"model": "policy", "resources": "stage"}
TURNS = [["model"], ["add", 1], ["model"], ["adds", 2, 3], ["model"], ["add", 4]]


def instances(folder: Path, *, latency_s: float = 0.0, **agent: Any) -> dict[str, Instance]:
    latency = {"mean_s": latency_s}
    return {
        "policy": Instance("models", "noting", {"notes": str(folder / "notes"), "latency": latency}),
        "stage": Instance("resources", "stage"),
        "puppet": Instance("agents", "puppet", {**SHARED, **agent}),
    }


@pytest.fixture
def log(config: LogConfig) -> LogConfig:
    return config.model_copy(update={"ack_wait_s": 1.0})


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - any condition, also of objects that tell nobody
            await asyncio.sleep(0.005)


def held(worker: Mortal, rollout: str) -> Any:
    """The rollout in an agent worker."""
    return worker.served._rollouts.get((rollout, ""))


async def stats(deployment: Deployment, rollout: str) -> RolloutStats:
    """What a rollout that completes with reward 1 used."""
    result = await deployment.end(rollout)
    assert isinstance(result, RolloutResult), result
    assert result.reward == 1.0
    assert result.stats is not None
    return result.stats


async def adopted(deployment: Deployment, rollout: str) -> list[str]:
    """The workers that adopted it, in their order."""
    events = await deployment.bus.history(rollout)
    return [
        msgspec.json.decode(entry.event.data)["worker"] for entry in events if entry.event.type == "rollout.adopted"
    ]


async def test_a_reply_that_comes_while_the_rollout_is_adopted_is_not_lost(
    server: str, log: LogConfig, tmp_path: Path
) -> None:
    """The reply is stored after the adopter has read the history, and handed over before it goes on."""
    async with Deployment(server, log, instances(tmp_path)) as deployment:
        await deployment.start("stage")
        first = await deployment.start_one(
            "puppet", worker="first", fails_at=2.0
        )  # its seed and its model call are out
        await deployment.ask("r", {"plan": TURNS, "expected": 10})
        await first.failed.wait()
        second = await deployment.start_one("puppet", worker="second")
        read = second._bus.history

        async def read_slowly(rollout: str) -> list[Recorded]:
            found = await read(rollout)
            if any(entry.event.type == "rollout.adopted" for entry in found):
                await deployment.start("policy")
                await until(lambda: held(second, "r").queue)
            return found

        second.history = read_slowly  # type: ignore[attr-defined]  # before the bus's own
        assert (await stats(deployment, "r")).adoptions == 1
        await deployment.check(["r"])


@pytest.mark.parametrize("deaf", [False, True], ids=["hears of the adoption", "does not hear of it"])
async def test_two_workers_that_hold_one_rollout_end_it_once(
    server: str, log: LogConfig, tmp_path: Path, deaf: bool
) -> None:
    """E6: the one that lost it drops it, at once or when it finds a call of the other; neither does harm."""
    async with Deployment(server, log, instances(tmp_path)) as deployment:
        await deployment.start("stage")
        first = await deployment.start_one("puppet", worker="first")
        if deaf:
            first.served._fence = lambda _partition: asyncio.sleep(PATIENCE_S)
        rollouts = [f"r{number}" for number in range(10)]
        for rollout in rollouts:
            await deployment.ask(rollout, {"plan": TURNS, "expected": 10})
        await until(lambda: all(held(first, rollout) and held(first, rollout).execution for rollout in rollouts))
        for puller in first.served._pool._pullers:
            await puller.stop()
        for rollout in rollouts:
            held(first, rollout).delivery.release()  # as if no sign of life had arrived
        second = await deployment.start_one("puppet", worker="second")
        await until(lambda: all(held(second, rollout) and held(second, rollout).execution for rollout in rollouts))
        if not deaf:
            await until(lambda: first.served.in_progress == 0)
        await deployment.start("policy")
        assert {(await stats(deployment, rollout)).turns for rollout in rollouts} == {3}
        await until(lambda: first.served.in_progress == second.served.in_progress == 0)
        await deployment.check(rollouts)
        made = (tmp_path / "notes").read_text().split()
        assert len(made) == len(set(made)) == 3 * len(rollouts)


async def test_a_rollout_that_nobody_began_is_begun_not_adopted(server: str, log: LogConfig, tmp_path: Path) -> None:
    """A worker that joins a used pool cannot know from a delivery alone that it is the first."""
    async with Deployment(server, log, instances(tmp_path)) as deployment:
        await deployment.start("policy", "stage")
        first = await deployment.start_one("puppet", worker="first", fails_at=1.0)
        await deployment.ask("begun", {"plan": TURNS, "expected": 10})
        await first.failed.wait()
        await deployment.ask("waiting", {"plan": TURNS, "expected": 10})
        await deployment.start_one("puppet", worker="second")
        assert (await stats(deployment, "waiting")).adoptions == 0
        assert (await stats(deployment, "begun")).adoptions == 1
        assert await adopted(deployment, "waiting") == []


async def test_a_worker_that_ends_politely_gives_back_what_it_holds_and_what_waits(
    server: str, log: LogConfig, tmp_path: Path
) -> None:
    """B12: rollouts in progress are adopted, those that waited for room are begun; nothing waits for an ack wait."""
    log = log.model_copy(update={"ack_wait_s": 600.0})
    found = instances(tmp_path, pool={"concurrency": 2})
    async with Deployment(server, log, found) as deployment:
        await deployment.start("stage")
        first = await deployment.start_one("puppet", worker="first")
        rollouts = [f"r{number}" for number in range(6)]
        for rollout in rollouts:
            await deployment.ask(rollout, {"plan": TURNS, "expected": 10})
        await until(lambda: first.served.in_progress == 2)
        async with asyncio.timeout(PATIENCE_S):
            await first.served.drain(2 * PATIENCE_S)  # the model's replies would not come
        assert first.served.in_progress == 0
        await deployment.start("policy")
        await deployment.start_one("puppet", worker="second")
        assert sum([(await stats(deployment, rollout)).adoptions for rollout in rollouts]) == 2
        await deployment.check(rollouts)


async def test_a_worker_that_ends_politely_lets_its_publishes_settle(
    server: str, log: LogConfig, tmp_path: Path
) -> None:
    """B12: a call that is on its way to the log when the worker is told to stop is stored once, and made once."""
    async with Deployment(server, log, instances(tmp_path)) as deployment:
        await deployment.start("stage")
        first = await deployment.start_one("puppet", worker="first")
        publish, held_back = first._bus.publish, asyncio.Event()

        async def publish_late(event: Event) -> int:
            if (event.rolloutid, event.type) == ("late", "model.requested"):
                await held_back.wait()
            return await publish(event)

        first._bus.publish = publish_late  # type: ignore[method-assign]  # a slow log
        rollouts = ["waits", "late"]
        for rollout in rollouts:
            await deployment.ask(rollout, {"plan": TURNS, "expected": 10})
        await until(lambda: all(held(first, rollout) and held(first, rollout).seq for rollout in rollouts))
        draining = asyncio.create_task(first.served.drain(PATIENCE_S))
        await until(lambda: not held(first, "waits"))
        assert held(first, "late")
        held_back.set()
        async with asyncio.timeout(PATIENCE_S):
            await draining
        assert [entry.event.type for entry in await deployment.bus.history("late")][-1] == "model.requested"
        await deployment.start("policy")
        await deployment.start_one("puppet", worker="second")
        assert {(await stats(deployment, rollout)).adoptions for rollout in rollouts} == {1}
        await deployment.check(rollouts)


@pytest.mark.parametrize("instance", ["policy", "stage"])
async def test_a_callee_that_ends_politely_gives_back_the_calls_that_it_cannot_answer_in_time(
    server: str, log: LogConfig, tmp_path: Path, instance: str
) -> None:
    """B12, E5: and what they did to a session is done once."""
    log = log.model_copy(update={"ack_wait_s": 600.0})
    found = instances(tmp_path)
    pool = {"pool": {"concurrency": 2}}
    model_s, tool_s = (1.0, 0.0) if instance == "policy" else (0.0, 1.0)
    found["policy"] = Instance("models", "noting", {**found["policy"].config, "latency": {"mean_s": model_s}, **pool})
    found["stage"] = Instance("resources", "stage", pool)
    plan = [["model"], ["tool", "add_slowly", {"count": 4, "seconds": tool_s}], ["add", 1]]
    async with Deployment(server, log, found) as deployment:
        await deployment.start("puppet", *({"policy", "stage"} - {instance}))
        first = await deployment.start_one(instance, worker="first")
        rollouts = [f"r{number}" for number in range(5)]
        for rollout in rollouts:
            await deployment.ask(rollout, {"plan": plan, "expected": 5})
        key = "m_1" if instance == "policy" else "m_2"
        for rollout in rollouts:
            await deployment.until(f"{log.namespace}.0.*.{instance}.*.request.{rollout}.{key}")
        callee = first.served._callee
        await until(lambda: callee.in_progress == callee._pool.held == 2)  # the others are nobody's
        await first.served.drain(0.01)
        assert first.served.in_progress == 0
        await deployment.start_one(instance, worker="second")
        assert [await deployment.reward(rollout) for rollout in rollouts] == [1.0] * 5
        await deployment.check(rollouts)


async def test_the_deadline_of_a_rollout_counts_from_its_first_worker(
    server: str, log: LogConfig, tmp_path: Path
) -> None:
    """E8: one that changes hands does not live longer for it; what it waits for in the queue does not count."""
    async with Deployment(server, log, instances(tmp_path, deadline_s=2.0)) as deployment:
        await deployment.start("stage")
        first = await deployment.start_one("puppet", worker="first", fails_at=2.0)
        await deployment.ask("r", {"plan": [["model"]]})
        await first.failed.wait()
        await say_stopping(deployment.bus, "first", "agents", "puppet")
        second = await deployment.start_one("puppet", worker="second")
        await until(lambda: held(second, "r") and held(second, "r").execution)
        rollout = held(second, "r")
        lived = asyncio.get_running_loop().time() - rollout.started
        begun, left = [
            await deployment.until(subject)
            for subject in (
                deployment.bus.subjects.request("resources", "stage", 1, "r", "m_0"),
                deployment.bus.subjects.deployment("stopping", "first"),
            )
        ]
        assert lived >= (left.event.time - begun.event.time).total_seconds()
        assert (await deployment.failure("r")).kind == "deadline"


async def test_what_waits_in_slots_that_a_pool_has_no_more_is_served(
    server: str, log: LogConfig, tmp_path: Path
) -> None:
    """B6: a run that is resumed with fewer slots; all calls were asked for in the slots of the config before."""
    rollouts = [f"r{number}" for number in range(12)]
    before = instances(tmp_path)
    before["policy"] = replace(before["policy"], slots=3)
    async with Deployment(server, log, before) as deployment:
        await deployment.start("stage", "puppet")
        first = await deployment.start_one("policy", worker="first", fails_at=0.5)
        for rollout in rollouts:
            await deployment.ask(rollout, {"plan": [["model"]]})
        await first.failed.wait()
        assert {slot_of(rollout, 3) for rollout in rollouts} == {0, 1, 2}
        deployment._instances = instances(tmp_path)
        await deployment.start_one("policy", worker="second")
        assert [await deployment.reward(rollout) for rollout in rollouts] == [1.0] * len(rollouts)
        await deployment.check(rollouts)


@pytest.mark.parametrize("polite", [True, False], ids=["stopped", "killed"])
async def test_the_time_in_which_a_deployment_was_down_does_not_count_for_a_deadline(
    server: str, log: LogConfig, tmp_path: Path, polite: bool
) -> None:
    """E8: a run that ends in the evening and is resumed in the morning loses nothing that was in progress."""
    deadline_s = 8.0
    async with Deployment(server, log, instances(tmp_path, deadline_s=deadline_s)) as deployment:
        await deployment.start("stage")
        first = await deployment.start_one("puppet", worker="first", fails_at=2.0)
        await deployment.ask("r", {"plan": [["model"], ["sleep", 3 * LOOK_S]]})
        await first.failed.wait()
        if polite:
            await say_stopping(deployment.bus, "first", "agents", "puppet")
        await asyncio.sleep(deadline_s)
        await deployment.start("policy")
        await deployment.start_one("puppet", worker="second")
        assert await deployment.reward("r") == 1.0
        await deployment.check(["r"])


async def test_a_run_survives_its_server(log: LogConfig, tmp_path: Path) -> None:
    """B10, E7: the server is killed and started again in the middle, and forgets some of what it had delivered."""
    server = await EmbeddedServer.start(tmp_path / "server", log)
    try:
        async with Deployment(server.url, log, instances(tmp_path, latency_s=0.05)) as deployment:
            await deployment.start("policy", "stage")
            for number in range(2):
                await deployment.start_one("puppet", worker=f"puppet-{number}")
            rollouts = [f"r{number}" for number in range(60)]
            for rollout in rollouts[:30]:
                await deployment.ask(rollout, {"plan": TURNS, "expected": 10})
            server._process.kill()
            await server.stop()
            server = await EmbeddedServer.start(tmp_path / "server", log, port=server.port)
            for rollout in rollouts[30:]:
                await deployment.ask(rollout, {"plan": TURNS, "expected": 10})
            assert {(await stats(deployment, rollout)).turns for rollout in rollouts} == {3}
            await deployment.check(rollouts)
            made = (tmp_path / "notes").read_text().split()
            assert len(set(made)) == 3 * len(rollouts)
    finally:
        await server.stop()
