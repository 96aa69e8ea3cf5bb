"""Calls of one session that are asked at once: they are applied in the order in which they were asked, E5.

The session is a number to which each call appends a digit, so that any other order is another number, in the session
as in the outputs. Runs whose servers are killed are in `test_whole_run_kills`, in the same way.
"""

import asyncio
import signal
from typing import Any

import msgspec
import pytest

from bus import LogConfig
from components.workers.stops import UNSUSPECTED
from contracts.events import Event
from contracts.rollouts import ToolOutput
from tests.e2e.workers import PATIENCE_S, Deployment, Instance, kept, start_process

DIGITS = range(1, 9)
ALL = int("".join(map(str, DIGITS)))
LATE_S = 1.0
"""In which a call that waits looks several times whether its turn has come."""


def instances(**resources: Any) -> dict[str, Instance]:
    return {
        "stage": Instance("resources", "stage", resources),
        "puppet": Instance("agents", "puppet", {"resources": "stage"}),
    }


def at_once(*calls: dict[str, Any]) -> list[Any]:
    """A step of a plan that makes these calls beside each other."""
    return ["parallel", *([["tool", "append", call]] for call in calls)]


def task(seconds: float = 0.0) -> dict[str, Any]:
    return {"plan": [at_once(*({"digit": digit, "seconds": seconds} for digit in DIGITS))], "expected": ALL}


async def outputs(deployment: Deployment, rollout: str) -> list[int]:
    """What the calls were answered with, as they were asked."""
    found: dict[str, int] = {}
    for entry in await deployment.bus.history(rollout):
        if entry.event.type == "tool.replied":
            output = msgspec.json.decode(await deployment.bus.fetch_data(entry.event), type=ToolOutput)
            found[entry.event.callkey] = int(msgspec.json.decode(output.output))
    return [found[key] for key in sorted(found, key=lambda key: int(key.partition("_")[0][1:]))]


async def in_order(deployment: Deployment, *rollouts: str) -> None:
    """The rollouts end as if each call had come when it was asked."""
    for rollout in rollouts:
        assert await outputs(deployment, rollout) == [int(str(ALL)[:digit]) for digit in DIGITS]
        assert await deployment.reward(rollout) == 1.0
    await deployment.check(rollouts)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "ended politely"])
async def test_what_a_worker_held_when_it_ended_is_applied_before_what_it_had_not_taken(
    server: str, config: LogConfig, number: signal.Signals
) -> None:
    """It comes back after the ack wait, or the delay of what is given back; the others are there at once."""
    log = config.model_copy(update={"ack_wait_s": 1.0})
    found = instances(pool={"concurrency": 3})
    rollouts = ["r0", "r1"]
    async with Deployment(server, log, found) as deployment:
        first = start_process(server, log, "stage", found["stage"], drain_s=0.05)
        try:
            await deployment.start("puppet")
            for rollout in rollouts:
                await deployment.ask(rollout, task(0.1))
            await deployment.until(deployment.bus.subjects.reply("*", "r0", "m2_0"))
            first.send_signal(number)
            await deployment.start_one("stage", worker="second")
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(*map(deployment.end, rollouts))
        finally:
            first.kill()
            first.wait()
            assert first.stdout is not None
            first.stdout.close()
        assert len(await outputs(deployment, "r0")) == len(DIGITS)
        await in_order(deployment, *rollouts)


@pytest.mark.parametrize("draws", ["stage", "draws"])
async def test_two_workers_that_serve_one_slot_apply_each_call_where_it_belongs(
    server: str, config: LogConfig, draws: str
) -> None:
    """E6: each of them gets some of the calls, and what it has of the session is soon not all of it."""
    found = {
        "stage": Instance("resources", draws, {"pool": {"concurrency": 2}}),
        "puppet": Instance("agents", "puppet", {"resources": "stage"}),
    }
    async with Deployment(server, config, found) as deployment:
        await deployment.start_one("stage", worker="first")
        await deployment.start_one("stage", worker="second")
        await deployment.start("puppet")
        if draws == "stage":
            await deployment.ask("r", task(0.02))
            await deployment.end("r")
            await in_order(deployment, "r")
        else:
            await deployment.ask("r", {"plan": [["adds", *DIGITS], ["add", 9]]})
            assert await deployment.reward("r") == 10.0
            await deployment.check(["r"])
        replies = [each.event for each in await deployment.bus.history("r") if each.event.type == "tool.replied"]
        assert {event.source.rpartition("/")[2] for event in replies} == {"first", "second"}


async def test_requests_that_reach_the_log_in_another_order_are_applied_as_they_were_asked(
    server: str, config: LogConfig
) -> None:
    """One is stored late, since its data is stored before it, or since the server refuses it for a moment."""
    log = config.model_copy(update={"inline_limit": 1_024})
    large = {"digit": 1, "fill": "x" * 2_000}
    async with Deployment(server, log, instances()) as deployment:
        await deployment.start("stage")
        puppet = await deployment.start_one("puppet")
        publish = puppet.publish

        async def publish_late(event: Event) -> int:
            if event.callkey == "m3_0":
                await deployment.until(deployment.bus.subjects.request("resources", "stage", 1, "r", "m8_0"))
            return await publish(event)

        puppet.publish = publish_late  # type: ignore[method-assign]
        await deployment.ask("r", {**task(), "plan": [at_once(large, *({"digit": digit} for digit in DIGITS[1:]))]})
        await deployment.end("r")
        requests = [e.event.callkey for e in await deployment.bus.history("r") if e.event.type == "tool.requested"]
        assert requests.index("m8_0") < requests.index("m3_0")
        await in_order(deployment, "r")


async def test_a_call_goes_on_when_the_one_before_it_is_buried_and_is_not_blamed_for_it(
    server: str, config: LogConfig
) -> None:
    """B6: it waits while that one ends worker after worker, which are no workers that it ended."""
    log = config.model_copy(update={"ack_wait_s": 1.0, "max_deliver": 1})
    found = instances()
    guilty = [["catch", [["tool", "append", {"digit": -1}]]]]
    async with Deployment(server, log, found) as deployment:
        await deployment.start("puppet")
        await deployment.ask("r", {"plan": [["parallel", guilty, [["tool", "append", {"digit": 2}]]]], "expected": 2})
        async with kept(server, log, "stage", found["stage"], 1) as codes:
            assert await deployment.reward("r") == 1.0
        assert len(codes) > UNSUSPECTED
        assert (await deployment.replied("r", "m1_0"))["kind"] == "poison"
        await deployment.check(["r"])


async def test_a_call_whose_rollout_has_ended_waits_for_nothing(server: str, config: LogConfig) -> None:
    """The one before it never gets into the log: its rollout has reached its deadline before."""
    found = {**instances(), "puppet": Instance("agents", "puppet", {"resources": "stage", "deadline_s": 0.2})}
    async with Deployment(server, config, found) as deployment:
        puppet = await deployment.start_one("puppet")
        publish = puppet.publish

        async def lose_one(event: Event) -> int:
            if event.callkey == "m1_0":
                await deployment.until(deployment.bus.subjects.reply("*", "r", "m2_0"))
            return await publish(event)

        puppet.publish = lose_one  # type: ignore[method-assign]
        await deployment.start("stage")
        await deployment.ask("r", task())
        assert (await deployment.failure("r")).kind == "deadline"
        assert (await deployment.replied("r", "m2_0"))["kind"] == "cancelled"


async def test_a_call_of_a_nested_rollout_waits_for_the_one_before_it_though_another_worker_adopts_that(
    server: str, config: LogConfig
) -> None:
    """E5: of two calls that were made at once the worker that ended had stored the second one only."""
    log = config.model_copy(update={"ack_wait_s": 1.0})
    found = {**instances(), "caller": Instance("agents", "puppet", {"resources": "stage", "helper": "puppet"})}
    asked = {"plan": [["appends", 1, 2]], "expected": 12}
    async with Deployment(server, log, found) as deployment:
        subjects = deployment.bus.subjects
        second = subjects.request("resources", "stage", 1, "r", "m_1--m2_0")
        await deployment.start("caller")
        first = await deployment.start_one("puppet", worker="first")
        publish = first.publish

        async def die_between(event: Event) -> int:
            if event.callkey == "m_1--m1_0":
                await deployment.until(second)
                await first._fail()
            return await publish(event)

        first.publish = die_between  # type: ignore[method-assign]
        await deployment.start("stage")
        await deployment.ask("r", {"plan": [["ask", asked]], "expected": 1}, agent="caller")
        await deployment.until(second)
        adopter = await deployment.start_one("puppet", worker="second")
        say = adopter.publish

        async def publish_late(event: Event) -> int:
            if event.callkey == "m_1--m1_0":
                late = asyncio.get_running_loop().time() + LATE_S
                while asyncio.get_running_loop().time() < late:
                    assert await deployment.bus.last(subjects.reply("*", "r", "m_1--m2_0")) is None
                    await asyncio.sleep(0.01)
            return await say(event)

        adopter.publish = publish_late  # type: ignore[method-assign]
        assert await deployment.reward("r") == 1.0
        await deployment.check(["r"])
