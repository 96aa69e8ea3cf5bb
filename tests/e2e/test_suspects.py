"""Calls that end their workers, real processes each: they are buried, and those that were held beside them are not."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bus import Bus, LogConfig
from bus.deadletter import DeadLetterData
from bus.subjects import Deployment as Deployed
from components.workers import stops
from components.workers.stops import UNSUSPECTED, Ends, say_crashed, say_stopping
from components.workers.suspects import say_trying, suspect
from contracts.deployments import CallTried
from contracts.events import Event
from contracts.rollouts import RolloutFailure
from tests.e2e.workers import Deployment, Instance, kept

SHARED = {"model": "policy", "resources": "stage"}
HEALTHY = [["add", 1], ["tool", "add_slowly", {"count": 2, "seconds": 0.2}], ["model"]]


async def test_what_ends_its_workers_fails_its_own_rollout_and_no_other(
    server: str, config: LogConfig, tmp_path: Path
) -> None:
    """E10, B6: a tool and a verifier that exit, beside healthy rollouts in the same slot of the same workers."""
    log = config.model_copy(update={"ack_wait_s": 1.5, "max_deliver": 1})
    instances = {
        "policy": Instance("models", "noting", {"notes": str(tmp_path / "notes")}),
        "stage": Instance("resources", "stage"),
        "puppet": Instance("agents", "puppet", SHARED),
    }
    guilty: dict[str, dict[str, Any]] = {
        "tool": {"plan": [["tool", "die", {"seconds": 0.0}]]},
        "verifier": {"plan": [["add", 1]], "verdict": "die"},
    }
    healthy = [f"r{number}" for number in range(9)]
    async with Deployment(server, log, instances) as deployment:
        await deployment.start("policy", "puppet")
        for rollout, task in guilty.items():
            await deployment.ask(rollout, task)
        for rollout in healthy:
            await deployment.ask(rollout, {"plan": HEALTHY, "expected": 3})
        async with kept(server, log, "stage", instances["stage"], 2) as codes:
            ends = await asyncio.gather(*(deployment.end(rollout) for rollout in [*healthy, *guilty]))
        assert set(codes) == {7}
        assert [getattr(end, "reward", end) for end in ends[: len(healthy)]] == [1.0] * len(healthy)
        for end in ends[len(healthy) :]:
            assert isinstance(end, RolloutFailure)
            assert (end.kind, end.details) == ("poison", {"reason": "exhausted"})
            assert end.message.startswith("1 worker ended, or gave it back, without answering it, ")
        await deployment.check([*healthy, *guilty])
        letters = [recorded async for recorded in deployment.bus.scan(f"{log.namespace}.0.dead.>")]
        assert {letter.event.rolloutid for letter in letters} == set(guilty)
        assert {msgspec.json.decode(each.event.data, type=DeadLetterData).reason for each in letters} == {"exhausted"}


async def test_a_model_call_that_ends_its_workers_fails_its_own_rollout_and_no_other(
    server: str, config: LogConfig, tmp_path: Path
) -> None:
    """B6: an engine in the worker's own process that crashes."""
    log = config.model_copy(update={"ack_wait_s": 1.5, "max_deliver": 1})
    crashing = {"notes": str(tmp_path / "notes"), "dies_of": "bad", "latency": {"mean_s": 0.3}}
    instances = {
        "policy": Instance("models", "noting", crashing),
        "stage": Instance("resources", "stage"),
        "puppet": Instance("agents", "puppet", SHARED),
    }
    async with Deployment(server, log, instances) as deployment:
        await deployment.start("stage", "puppet")
        rollouts = ["r0", "r1", "bad", "r2", "r3"]
        for rollout in rollouts:
            await deployment.ask(rollout, {"plan": [["model"], ["add", 1]], "expected": 1})
        async with kept(server, log, "policy", instances["policy"], 1):
            ends = {rollout: await deployment.end(rollout) for rollout in rollouts}
        bad = ends.pop("bad")
        assert isinstance(bad, RolloutFailure)
        assert bad.kind == "poison"
        assert bad.message.startswith("1 worker ended, or gave it back, without answering it, ")
        assert [getattr(end, "reward", end) for end in ends.values()] == [1.0] * 4


async def test_what_has_ended_a_worker_is_tried_after_all_others(
    server: str, config: LogConfig, tmp_path: Path
) -> None:
    """B6: what waits beside it is answered first, so that it does not go down with one more worker."""
    instances = {
        "policy": Instance("models", "noting", {"notes": str(tmp_path / "notes")}),
        "stage": Instance("resources", "stage"),
        "puppet": Instance("agents", "puppet", SHARED),
    }
    async with Deployment(server, config, instances) as deployment:
        await deployment.start("stage", "puppet")
        bus = deployment.bus
        pool = await bus.pool("models", "policy", [0], types=["model.requested"])
        for rollout in ("guilty", "r1", "r2"):
            await deployment.ask(rollout, {"plan": [["model"], ["add", 1]], "expected": 1})
            await deployment.until(bus.subjects.request("models", "policy", 1, rollout, "m_1"))
        returned = 0
        async for delivery in pool:
            if delivery.num_delivered == UNSUSPECTED and delivery.event.rolloutid == "guilty":
                await say_trying(bus, delivery.event, "models", "policy", await suspect(bus, delivery.event, 1024))
            returned += delivery.num_delivered == UNSUSPECTED
            delivery.nak(0.1)
            if returned == 3:
                break
        await pool.close()
        await deployment.start("policy")
        assert [await deployment.reward(rollout) for rollout in ("guilty", "r1", "r2")] == [1.0] * 3
        made = (tmp_path / "notes").read_text().split()
        assert sorted(made) == ["guilty/m_1", "r1/m_1", "r2/m_1"]
        assert made[-1] == "guilty/m_1"


async def test_a_suspect_is_tried_with_less_and_less_beside_it_and_crashes_three_workers_alone(
    server: str, config: LogConfig
) -> None:
    """B6, B12: workers that were told to stop while they tried it do not count, and what was killed counts less."""
    expected = {
        (20, True): [1, 32, 1024, 1024, 1024],
        (20, False): [1, 32] + [1024] * 18,
        (3, False): [1, 32, 1024],
        (2, False): [1, 1024],
        (1, False): [1024],
    }
    for (limit, crashes), places in expected.items():
        log = config.model_copy(update={"max_deliver": limit, "namespace": f"limit{limit}{crashes}"})
        found = []
        request: Event | None = None
        for number in range(len(places) + 1):
            worker = f"w-{number}"
            async with await Bus.connect(server, log, name=f"models/policy/{worker}", writer=worker) as bus:
                await bus.ensure_log()
                if request is None:
                    subject = bus.subjects.request("models", "policy", 1, "r" * 128, "m_" + "1" * 510)
                    request = bus.event("model.requested", subject, b"{}", rolloutid="r" * 128)
                suspected = await suspect(bus, request, 1024)
                assert (suspected.ended, suspected.exhausted) == (number, number == len(places))
                if suspected.exhausted:
                    continue
                assert suspected.alone == (suspected.places == 1024)
                found.append(suspected.places)
                await say_trying(bus, request, "models", "policy", suspected)
                if crashes:
                    await say_crashed(bus, worker, "ended with exit code 1")
            async with await Bus.connect(server, log, name=f"models/policy/s-{worker}", writer=f"s-{worker}") as bus:
                again = await suspect(bus, request, 1024)
                if not again.exhausted:  # it is tried by one that is told to stop
                    await say_trying(bus, request, "models", "policy", again)
                    await say_stopping(bus, f"s-{worker}", "models", "policy")
                    await say_crashed(bus, f"s-{worker}", "ended with exit code 0")
                    assert await bus.last(bus.subjects.deployment("crashed", f"s-{worker}")) is None
        assert found == places
        async with await Bus.connect(server, log, name="test/1", writer="reader") as bus:
            said = [each async for each in bus.scan(bus.subjects.deployment("trying", "*"))]
        assert len(said) == 2 * len(places) - 1
        assert {msgspec.json.decode(each.event.data, type=CallTried).kind for each in said} == {"models"}


async def test_only_a_worker_that_another_had_to_replace_and_that_was_not_told_to_stop_warns(
    server: str, config: LogConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a pool that is restarted twice, or a run that is resumed twice, would try all that it held one by one."""
    monkeypatch.setattr(stops, "_LOOK_AGAIN_S", -1.0)
    async with await Bus.connect(server, config, name="test/1", writer="test") as bus:
        await bus.ensure_log()
        ends = Ends(bus, "policy")

        async def say(what: Deployed, identifier: str) -> Event:
            subject = bus.subjects.deployment(what, identifier)
            event = bus.event(type=f"deployment.{what}", subject=subject, data=b"{}")
            await bus.publish(event)
            return event

        begun = await say("resolved", "d1")
        for worker in ("policy-0-a", "policy-1-a", "policy-x-0-a", "policy-x-0-b", "other-0-a", "other-0-b"):
            await say("worker", worker)
        assert not await ends.since(begun.time), "others are no matter, and two places are not one"
        for worker, after in (("policy-0-a", "policy-0-b"), ("policy-0-b", "policy-0-c")):
            await say_stopping(bus, worker, "models", "policy")
            await say("worker", after)
        assert not await ends.since(begun.time)
        await say("resolved", "d2")  # all were killed
        await say("worker", "policy-0-d")
        await say("worker", "policy-1-d")
        assert not await ends.since(begun.time)
        replaced = await say("worker", "policy-0-e")
        assert await ends.since(begun.time)
        assert await ends.since(replaced.time)
        await say_stopping(bus, "policy-0-e", "models", "policy")
        later = await say("worker", "policy-0-f")
        assert not await ends.since(later.time)
        assert await Ends(bus, "policy").since(begun.time), "one that comes later knows it too"
