"""E7: a run balances from its log alone, and what does not balance is named with the reason."""

import asyncio

import msgspec
import pytest

from bus import Bus, Delivery, LogConfig
from bus.overview import slot_states
from contracts.deployments import RunStarted
from contracts.events import Event
from contracts.ids import ROOT_CALL
from orchestrator.audit import Audit, Unbalanced, audit
from tests.bus.conftest import Open
from tests.bus.events import reply, request, take

RUN = "run"


def rollout(bus: Bus, name: str, run: str = RUN, agent: str = "solver", cause: str = "") -> Event:
    """The request of a rollout."""
    return bus.event(
        "rollout.requested",
        bus.subjects.request("agents", agent, 1, name, ROOT_CALL),
        b"{}",
        rolloutid=name,
        callkey=ROOT_CALL,
        replyto=bus.subjects.ended(run, name),
        causationid=cause,
    )


def end(bus: Bus, name: str, outcome: str = "completed", run: str = RUN) -> Event:
    return bus.event(f"rollout.{outcome}", bus.subjects.ended(run, name), b"{}", rolloutid=name)


async def held(bus: Bus, count: int) -> list[Delivery]:
    """A worker of the pool takes so many rollouts."""
    pool = await bus.pool("agents", "solver", [0], types=["rollout.requested"], batch=max(1, count))
    return await take(pool, count)


async def settled(bus: Bus, count: int) -> None:
    """Returns when so many acks have reached the server."""
    async with asyncio.timeout(20):
        while (state := (await slot_states(bus, 0))[0]).deliveries - state.held < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def counts(found: Audit) -> tuple[int, int, int, int, int]:
    return found.requested, found.completed, found.failed, found.cancelled, found.in_flight


def told(found: Audit) -> dict[str, str]:
    return {problem.rollout: problem.reason for problem in found.unbalanced}


async def test_rollouts_that_ended_wait_or_are_held_balance(bus: Bus) -> None:
    for number in range(6):
        await bus.publish(rollout(bus, f"run-{number}"))
    await bus.publish(request(bus, "run-0"))
    await bus.publish(request(bus, "run-0", "m_0--m_0"))
    await bus.publish(request(bus, "run-3"))
    await bus.publish(reply(bus, "run-0"))
    taken = await held(bus, 4)
    for number, outcome in enumerate(("completed", "failed", "cancelled")):
        await bus.publish(end(bus, f"run-{number}", outcome))
        taken[number].ack()
    found = await audit(bus, RUN)
    assert counts(found) == (6, 1, 1, 1, 3)
    assert found.balanced
    assert (found.calls, found.open_calls) == (3, 2)
    assert (found.planned, found.not_yet_asked, found.unbalanced) == (None, None, ())


async def test_other_runs_of_the_log_are_left_out_also_where_their_ids_look_alike(bus: Bus) -> None:
    for run in (RUN, "run-b", "other"):
        await bus.publish(rollout(bus, f"{run}-0", run))
        await bus.publish(request(bus, f"{run}-0"))
    await bus.publish(end(bus, "run-b-0", run="run-b"))
    for run, ended in ((RUN, 0), ("run-b", 1), ("other", 0)):
        found = await audit(bus, run)
        assert counts(found) == (1, ended, 0, 0, 1 - ended)
        assert (found.balanced, found.calls) == (True, 1)


async def test_what_the_run_has_not_asked_for_yet_is_told_and_new_attempts_are_beside_it(bus: Bus) -> None:
    started = RunStarted(run_id=RUN, config={}, rollouts=5, skipped_lines=0, inputs_sha256="")
    await bus.publish(
        bus.event("deployment.run", bus.subjects.deployment("run", RUN), msgspec.json.encode(started)),
    )
    assert counts(await audit(bus, RUN)) == (0, 0, 0, 0, 0)
    await bus.publish(rollout(bus, "run-0"))
    await bus.publish(end(bus, "run-0", "failed"))
    await bus.publish(rollout(bus, "run-0-a1", cause="w1-2"))
    found = await audit(bus, RUN)
    assert (found.planned, found.requested, found.again, found.not_yet_asked) == (5, 2, 1, 4)
    assert found.balanced


async def test_a_run_that_the_log_does_not_know_does_not_exist(bus: Bus) -> None:
    await bus.publish(rollout(bus, "run-0"))
    assert not (await audit(bus, "nur")).exists
    assert (await audit(bus, RUN)).exists


async def test_a_rollout_whose_request_is_acknowledged_and_that_never_ended_is_lost(bus: Bus) -> None:
    for number in range(3):
        await bus.publish(rollout(bus, f"run-{number}"))
    for delivery in await held(bus, 2):
        delivery.ack()
    await bus.publish(end(bus, "run-1"))
    await settled(bus, 2)
    found = await audit(bus, RUN)
    assert counts(found) == (3, 1, 0, 0, 1)
    assert not found.balanced
    assert told(found) == {"run-0": "lost"}


async def test_one_that_is_lost_among_others_that_are_held_is_noticed(bus: Bus) -> None:
    for number in range(3):
        await bus.publish(rollout(bus, f"run-{number}"))
    (_, second, _) = await held(bus, 3)
    second.ack()
    await settled(bus, 1)
    found = await audit(bus, RUN)
    assert not found.balanced
    assert told(found) == dict.fromkeys(("run-0", "run-1", "run-2"), "unheld")
    assert "of 3 such rollouts the pool of solver holds 2" in found.unbalanced[0].message


async def test_what_ends_while_the_log_is_read_is_not_lost(bus: Bus, open_bus: Open, url: str) -> None:
    """Rollouts go on all the time: acknowledged as soon as they ended, and each audit balances."""
    worker, done = await open_bus(url), asyncio.Event()

    async def ask() -> None:
        for number in range(300):
            await bus.publish(rollout(bus, f"run-{number}"))

    async def serve() -> None:
        pool = await worker.pool("agents", "solver", [0], types=["rollout.requested"], batch=8)
        for _ in range(300):
            (delivery,) = await take(pool)
            await worker.publish(end(worker, delivery.event.rolloutid))
            delivery.ack()
        done.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(ask())
        group.create_task(serve())
        while not done.is_set():
            found = await audit(bus, RUN)
            assert found.balanced, found
    assert counts(await audit(bus, RUN)) == (300, 300, 0, 0, 0)


@pytest.mark.parametrize(
    ("subjects", "problem"),
    [
        (["request solver", "request other", "end run"], "requested_twice"),
        (["request solver", "end run", "end other"], "ended_twice"),
        (["end run"], "not_requested"),
        (["call"], "not_requested"),
        (["request solver", "reply"], "call_not_open"),
        (["request solver", "call", "reply", "reply other"], "call_not_open"),
    ],
)
async def test_what_does_not_fit_together_is_named_with_its_reason(bus: Bus, subjects: list[str], problem: str) -> None:
    for subject in subjects:
        what, _, who = subject.partition(" ")
        match what:
            case "request":
                await bus.publish(rollout(bus, "run-0", agent=who))
            case "end":
                await bus.publish(end(bus, "run-0", run=who))
            case "call":
                await bus.publish(request(bus, "run-0"))
            case _:
                await bus.publish(reply(bus, "run-0", worker=who or "caller"))
    await bus.publish(rollout(bus, "run-1"))
    found = await audit(bus, RUN)
    assert not found.balanced
    assert told(found) == {"run-0": problem}


async def test_a_request_that_nobody_can_read_is_named_with_its_dead_letter(bus: Bus) -> None:
    subject = bus.subjects.request("agents", "solver", 1, "run-0", ROOT_CALL)
    await bus._connection.request(subject, b"no event")
    pool = await bus.pool("agents", "solver", [0], types=["rollout.requested"])
    taking = asyncio.ensure_future(anext(pool))
    async with asyncio.timeout(20):
        while (letter := await bus.last(f"{bus.config.namespace}.0.dead.>")) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    taking.cancel()
    (found,) = (await audit(bus, RUN)).unbalanced
    assert found == Unbalanced(
        rollout="run-0",
        reason="unreadable_request",
        message=f"its request cannot be read, so no worker can take it or end it; dead letter 0-{letter.seq}",
    )


async def test_partitions_add_up(url: str, config: LogConfig) -> None:
    spread = config.model_copy(update={"partitions": 3})
    async with await Bus.connect(url, spread, name="test", writer="w") as bus:
        await bus.ensure_log()
        for number in range(12):
            await bus.publish(rollout(bus, f"run-{number}"))
            if number % 2:
                await bus.publish(end(bus, f"run-{number}"))
        await bus.publish(end(bus, "run-x"))
        found = await audit(bus, RUN)
        assert counts(found) == (12, 7, 0, 0, 6)
        assert told(found) == {"run-x": "not_requested"}
