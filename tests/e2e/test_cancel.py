"""What is cancelled ends as cancelled wherever it is: queued or running, at every pool; the rest goes on."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bus import LogConfig
from bus.overview import pool_states
from components.workers import agent, callee, cancellations
from components.workers.cancellations import cancel, cancel_run
from components.workers.stops import UNSUSPECTED
from contracts.rollouts import RolloutFailure, RolloutResult
from tests.e2e.engines import listening
from tests.e2e.workers import PATIENCE_S, RUN, Deployment, Instance

NAMES = ("policy", "stage", "puppet", "helper")


def instances(folder: Path, engine: str = "http://127.0.0.1:1/v1") -> dict[str, Instance]:
    shared = {"model": "policy", "resources": "stage"}
    hang = {"notes": str(folder / "notes"), "faults": [{"kind": "hang", "rate": 1.0}]}
    return {
        "policy": Instance("models", "noting", {"notes": str(folder / "notes")}),
        "hanging": Instance("models", "noting", hang),
        "narrow": Instance("models", "noting", {**hang, "pool": {"concurrency": 1}}),
        "engine": Instance("models", "chat_model", {"base_url": engine, "model": "m"}),
        "stage": Instance("resources", "stage", {"tool_deadline_s": 60.0}),
        "helper": Instance("agents", "puppet", shared),
        "puppet": Instance("agents", "puppet", {**shared, "helper": "helper"}),
    }


@pytest.fixture
async def deployment(server: str, config: LogConfig, tmp_path: Path) -> AsyncIterator[Deployment]:
    async with Deployment(server, config, instances(tmp_path)) as deployment:
        yield deployment


async def cancelled(deployment: Deployment, *rollouts: str, reason: str = "enough") -> None:
    """They ended so, once, with no reward, and what was recorded is what their code does."""
    for rollout in rollouts:
        recorded = await deployment.until(deployment.bus.subjects.ended(RUN, rollout))
        failure = msgspec.json.decode(recorded.event.data, type=RolloutFailure)
        assert (recorded.event.type, failure.kind, failure.message) == ("rollout.cancelled", "cancelled", reason)
    await deployment.check(rollouts)


async def nothing_is_held(deployment: Deployment) -> None:
    """Every pool has settled all that it was asked, and every call has its one reply."""
    async with asyncio.timeout(PATIENCE_S):
        while any(pool.held or pool.waiting for pool in await pool_states(deployment.bus)):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    bus = deployment.bus
    for partition in range(bus.config.partitions):
        events = [recorded.event async for recorded in bus.scan(partition=partition)]
        subjects = {event.subject for event in events}
        calls = [event for event in events if event.type.endswith(".requested") and event.replyto]
        assert [e.subject for e in calls if e.type != "timer.requested" and e.replyto not in subjects] == []


def notes(folder: Path) -> list[str]:
    """The calls that reached a model."""
    return (folder / "notes").read_text().splitlines() if (folder / "notes").exists() else []


async def begun(deployment: Deployment, rollout: str, key: str) -> None:
    """A call of it is in the log."""
    partition = deployment.bus.subjects.partition(rollout)
    await deployment.until(f"{deployment.bus.config.namespace}.{partition}.*.*.*.request.{rollout}.{key}")


# --- whatever a rollout waits for -----------------------------------------------------------------------------------

WAITS = {
    "a model": [["model", "hanging"]],
    "a tool": [["tool", "add_slowly", {"count": 1, "seconds": 60}]],
    "a tool in a thread": [["tool", "hang", {"seconds": 0.5}], ["sleep", 60]],
    "a timer": [["sleep", 60]],
    "an agent": [["ask", {"plan": [["model", "hanging"]]}]],
    "all at once": [["parallel", [["model", "hanging"]], [["sleep", 60]], [["ask", {"plan": [["sleep", 60]]}]]]],
    "what it catches": [["catch", [["model", "hanging"]]], ["sleep", 60]],
}


@pytest.mark.parametrize("whole_run", [True, False], ids=["run", "rollout"])
async def test_whatever_a_rollout_waits_for_it_ends_and_so_do_its_calls(
    deployment: Deployment, whole_run: bool
) -> None:
    await deployment.start(*NAMES, "hanging")
    rollouts = {f"r{number}": plan for number, plan in enumerate(WAITS.values())}
    for rollout, plan in rollouts.items():
        await deployment.ask(rollout, {"plan": plan})
    await deployment.ask("other", {"plan": [["sleep", 0.5], ["add", 1]], "expected": 1}, run="another")
    for rollout in ("r0", "r1", "r2", "r3", "r6"):
        await begun(deployment, rollout, "m_1")
    await begun(deployment, "r4", "m_1--m_1")
    await begun(deployment, "r5", "m3_0--m_1")
    if whole_run:
        await cancel_run(deployment.bus, RUN, "enough")
    else:
        for rollout in rollouts:
            await cancel(deployment.bus, RUN, rollout, "enough")
    await cancelled(deployment, *rollouts)
    recorded = await deployment.until(deployment.bus.subjects.ended("another", "other"))
    assert recorded.event.type == "rollout.completed"
    await nothing_is_held(deployment)
    error = await deployment.replied("r0", "m_1")
    assert error["kind"] == "cancelled"


async def test_calls_in_the_queue_of_a_busy_pool_are_answered_without_being_made(
    deployment: Deployment, tmp_path: Path
) -> None:
    await deployment.start(*NAMES, "narrow")
    rollouts = [f"r{number}" for number in range(6)]
    for rollout in rollouts:
        await deployment.ask(rollout, {"plan": [["model", "narrow"]]})
        await begun(deployment, rollout, "m_1")
    for rollout in rollouts[1:]:
        await cancel(deployment.bus, RUN, rollout, "enough")
    await cancelled(deployment, *rollouts[1:])
    await cancel(deployment.bus, RUN, rollouts[0], "enough")
    await cancelled(deployment, *rollouts)
    await nothing_is_held(deployment)
    assert notes(tmp_path) == ["r0/m_1"]


async def test_an_engine_sees_that_nobody_waits_for_its_answer(server: str, config: LogConfig, tmp_path: Path) -> None:
    """The HTTP call is aborted: its connection is closed from here."""
    asked, left = asyncio.Event(), asyncio.Event()

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"GET"):  # the model asks what is there before it serves
            writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        else:
            asked.set()
            while await reader.read(65_536):
                pass
            left.set()
        writer.close()

    async with (
        listening(never) as url,
        Deployment(server, config, instances(tmp_path, url)) as deployment,
        asyncio.timeout(PATIENCE_S),
    ):
        await deployment.start(*NAMES)
        worker = await deployment.start_one("engine")
        await deployment.ask("r", {"plan": [["model", "engine"]]})
        await asked.wait()
        await cancel_run(deployment.bus, RUN, "enough")
        await left.wait()
        await cancelled(deployment, "r")
        await nothing_is_held(deployment)
        await worker.served.drain(1.0)


# --- who hears of it later ------------------------------------------------------------------------------------------


async def test_rollouts_in_the_queue_end_when_a_worker_comes_and_their_code_never_runs(
    server: str, config: LogConfig, tmp_path: Path
) -> None:
    """In every partition; those of another run, and of a run whose name begins like this one's, go on."""
    log = config.model_copy(update={"partitions": 3})
    async with Deployment(server, log, instances(tmp_path)) as deployment:
        rollouts = [f"r{number}" for number in range(12)]
        for rollout in rollouts:
            await deployment.ask(rollout, {"plan": [["model"]]})
        await deployment.ask(f"{RUN}-2-r", {"plan": [["model"]]}, run=f"{RUN}-2")
        assert await cancel_run(deployment.bus, RUN, "enough")
        assert not await cancel_run(deployment.bus, RUN, "said before")
        await deployment.start(*NAMES)
        await deployment.ask("late", {"plan": [["model"]]})
        await cancelled(deployment, *rollouts, "late")
        ended = await deployment.until(deployment.bus.subjects.ended(f"{RUN}-2", f"{RUN}-2-r"))
        assert ended.event.type == "rollout.completed"
        assert notes(tmp_path) == [f"{RUN}-2-r/m_1"]
        await nothing_is_held(deployment)


async def test_a_worker_that_remembers_few_cancellations_asks_the_log_for_the_others(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancellations, "REMEMBERED", 2)
    rollouts = [f"r{number}" for number in range(6)]
    for rollout in rollouts:
        await deployment.ask(rollout, {"plan": [["add", 1]]})
        await cancel(deployment.bus, RUN, rollout, "enough")
    await deployment.ask("kept", {"plan": [["add", 1]], "expected": 1})
    await deployment.start(*NAMES)
    await cancelled(deployment, *rollouts)
    assert await deployment.reward("kept") == 1.0


async def test_a_rollout_whose_worker_died_is_cancelled_by_the_next_one_with_its_calls(
    server: str, config: LogConfig, tmp_path: Path
) -> None:
    log = config.model_copy(update={"ack_wait_s": 1.0})
    async with Deployment(server, log, instances(tmp_path)) as deployment:
        await deployment.start("policy", "stage", "hanging")
        await deployment.ask("r", {"plan": [["model", "hanging"]]})
        puppet = await deployment.start_one("puppet", worker="puppet-0", fails_at=2)
        async with asyncio.timeout(PATIENCE_S):
            await puppet.failed.wait()
        await cancel_run(deployment.bus, RUN, "enough")
        await deployment.start_one("puppet", worker="puppet-1")
        await cancelled(deployment, "r")
        await nothing_is_held(deployment)


async def test_calls_end_though_the_worker_of_an_agent_that_was_asked_hears_of_it_first(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure of a nested rollout, which never began, ends the one around it before that is looked for."""
    monkeypatch.setattr(agent, "CANCEL_S", PATIENCE_S * 2)
    await deployment.start("policy", "stage", "puppet", "hanging")
    ask: list[Any] = [["ask", {"plan": [["model"]]}]]
    await deployment.ask("ends", {"plan": [["parallel", [["model", "hanging"]], ask]]})
    await deployment.ask("goes-on", {"plan": [["parallel", [["catch", [["model", "hanging"]]]], [["catch", ask]]]]})
    for rollout in ("ends", "goes-on"):
        await begun(deployment, rollout, "m1_0")
        await begun(deployment, rollout, "m2_0")
    await cancel_run(deployment.bus, RUN, "enough")
    await deployment.start("helper")
    await cancelled(deployment, "ends")
    assert await deployment.end("goes-on")
    await nothing_is_held(deployment)


async def test_a_call_is_cancelled_while_it_is_written_down_that_it_may_be_what_ends_its_workers(
    server: str, config: LogConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Deployment(server, config, instances(tmp_path)) as deployment:
        await deployment.start(*NAMES)
        await deployment.ask("r", {"plan": [["model", "hanging"]]})
        for number in range(UNSUSPECTED):
            stopped = await deployment.start_one("hanging", worker=f"hanging-{number}")
            async with asyncio.timeout(PATIENCE_S):
                while len(notes(tmp_path)) <= number:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            await stopped.served.drain(0.0)
        said = []

        async def say_trying(*_: object) -> None:
            said.append("r")
            await cancel(deployment.bus, RUN, "r", "enough")
            while last.served._callee._cancellations.of("r") is None:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

        monkeypatch.setattr(callee, "say_trying", say_trying)
        last = await deployment.start_one("hanging", worker="hanging-last")
        await cancelled(deployment, "r")
        await nothing_is_held(deployment)
        assert said == ["r"]


async def test_later_attempts_of_a_cancelled_rollout_are_cancelled_too(deployment: Deployment) -> None:
    await deployment.start(*NAMES, "hanging")
    for rollout in ("r-a1", "other-a1"):
        await deployment.ask(rollout, {"plan": [["model", "hanging"]]}, attempt=1)
        await begun(deployment, rollout, "m_1")
    await cancel(deployment.bus, RUN, "r", "enough")
    await cancelled(deployment, "r-a1")
    await deployment.ask("r-a2", {"plan": [["model", "hanging"]]}, attempt=2)
    await cancelled(deployment, "r-a2")
    assert await deployment.bus.last(deployment.bus.subjects.ended(RUN, "other-a1")) is None
    await cancel(deployment.bus, RUN, "other-a1", "enough")
    await cancelled(deployment, "other-a1")
    await nothing_is_held(deployment)


async def test_what_has_ended_keeps_its_end(deployment: Deployment) -> None:
    await deployment.start(*NAMES)
    await deployment.ask("done", {"plan": [["add", 1]], "expected": 1})
    await deployment.ask("failed", {"plan": [["raise", "no idea"]]})
    assert (await deployment.failure("failed")).kind == "agent_error"
    assert await deployment.reward("done") == 1.0
    for rollout in ("done", "failed"):
        await cancel(deployment.bus, RUN, rollout, "enough")
    await deployment.start_one("puppet", worker="puppet-1")
    await deployment.ask("after", {"plan": [["add", 1]], "expected": 1})
    assert await deployment.reward("after") == 1.0
    assert isinstance(await deployment.end("done"), RolloutResult)
    assert (await deployment.failure("failed")).kind == "agent_error"
    await deployment.check(["done", "failed", "after"])
