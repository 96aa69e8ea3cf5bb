"""Sessions that are lost and made again from the log while calls are in progress on them."""

import asyncio
from typing import Any

import pytest

from bus import LogConfig
from contracts.events import Event, Recorded
from tests.e2e.workers import PATIENCE_S, Deployment, Instance


def instances(**resources: Any) -> dict[str, Instance]:
    return {
        "stage": Instance("resources", "stage", resources),
        "puppet": Instance("agents", "puppet", {"resources": "stage"}),
    }


async def test_a_session_that_is_lost_before_a_reply_is_stored_is_made_again_with_that_call(
    server: str, config: LogConfig
) -> None:
    """E5: a rebuild reads the log; what was applied to the session a moment ago must stand there first."""
    async with Deployment(server, config, instances()) as deployment:
        stage = await deployment.start_one("stage")
        publish, history = stage.publish, stage._bus.history
        read = asyncio.Event()
        dropped: list[str] = []

        async def publish_slowly(event: Event) -> int:
            if event.type == "tool.replied" and not dropped:
                dropped.append(event.callkey)
                stage.served._runtime.drop("r")
                await asyncio.wait({asyncio.create_task(read.wait())}, timeout=0.3)
            return await publish(event)

        async def history_seen(rollout: str) -> list[Recorded]:
            found = await history(rollout)
            read.set()
            return found

        stage.publish = publish_slowly  # type: ignore[method-assign]
        stage.history = history_seen  # type: ignore[attr-defined]  # before the bus's own
        await deployment.start("puppet")
        await deployment.ask("r", {"plan": [["adds", 1, 2, 4], ["add", 8]], "expected": 15})
        assert await deployment.reward("r") == 1.0
        assert dropped
        await deployment.check(["r"])


async def test_a_rebuilt_session_has_the_answered_calls_since_its_last_seed(server: str, config: LogConfig) -> None:
    """Not those before it, and not one that was given up: it may hang again."""
    plan = [
        ["add", 50],
        ["seed"],
        ["add", 1],
        ["catch", [["tool", "hang_on", {"count": 100}]]],
        ["add", 2],
    ]
    async with Deployment(server, config, instances(tool_deadline_s=0.3)) as deployment:
        await deployment.start("stage", "puppet")
        await deployment.ask("r", {"plan": plan, "expected": 3})
        assert await deployment.reward("r") == 1.0
        assert (await deployment.replied("r", "m_4"))["kind"] == "deadline"
        await deployment.check(["r"])


async def test_a_call_whose_answer_is_too_large_is_not_in_the_session(server: str, config: LogConfig) -> None:
    """E5: it was answered with an error, so no rebuild would have it either."""
    plan = [
        ["tool", "append", {"digit": 1}],
        ["catch", [["tool", "append", {"digit": 2, "padded": 200_000}]]],
        ["tool", "append", {"digit": 3}],
    ]
    log = config.model_copy(update={"inline_limit": 10_000, "blob_limit": 50_000})
    async with Deployment(server, log, instances()) as deployment:
        await deployment.start("stage", "puppet")
        await deployment.ask("r", {"plan": plan, "expected": 13})
        assert await deployment.reward("r") == 1.0
        assert (await deployment.replied("r", "m_2"))["kind"] == "bad_request"
        await deployment.check(["r"])


async def test_a_rollout_whose_session_is_not_as_it_was_when_its_calls_are_made_again_has_no_reward(
    server: str, config: LogConfig
) -> None:
    """E9: what the tool needs went away with the session's worker."""

    async def away(**_: object) -> str:
        raise ConnectionError("no service")

    log = config.model_copy(update={"ack_wait_s": 1.0})
    async with Deployment(server, log, instances()) as deployment:
        first = await deployment.start_one("stage", worker="first", fails_at=2.5)
        await deployment.start("puppet")
        await deployment.ask("r", {"plan": [["add", 1], ["add", 2]], "expected": 3})
        async with asyncio.timeout(PATIENCE_S):
            await first.failed.wait()
        second = await deployment.start_one("stage", worker="second")
        second.served._runtime._resources.add = away
        failure = await deployment.failure("r")
        assert failure.kind == "unavailable"
        assert failure.message.startswith("the session of r is lost: made again, add (call) was answered with")
        assert "ConnectionError: no service" in failure.message
        await deployment.check(["r"])


@pytest.mark.parametrize(("nested", "session"), [(False, "r"), (True, "r/m_1")])
async def test_a_session_that_is_not_to_be_rebuilt_fails_its_rollout_which_is_told_whose_it_was(
    server: str, config: LogConfig, nested: bool, session: str
) -> None:
    """Its worker died between the first call and the second."""
    log = config.model_copy(update={"ack_wait_s": 1.0})
    found = {
        "frail": Instance("resources", "frail"),
        "stage": Instance("resources", "stage"),
        "helper": Instance("agents", "puppet", {"resources": "frail"}),
        "puppet": Instance("agents", "puppet", {"resources": "stage", "helper": "helper"}),
    }
    task = {"plan": [["add", 1], ["add", 2]]}
    async with Deployment(server, log, found) as deployment:
        await deployment.start("stage", "helper", "puppet")
        first = await deployment.start_one("frail", worker="first", fails_at=2.5)
        await deployment.ask("r", {"plan": [["ask", task]]} if nested else task, agent="puppet" if nested else "helper")
        async with asyncio.timeout(PATIENCE_S):
            await first.failed.wait()
        await deployment.start_one("frail", worker="second")
        failure = await deployment.failure("r")
        assert failure.message.startswith(f"the session of {session} is lost: Frail does not rebuild sessions")
