"""Sessions that are lost and restored from the snapshots in the log, since nobody can make their calls again."""

import asyncio
import itertools
from math import inf
from typing import Any

import msgspec
import pytest

from bus import LogConfig, Unreachable
from contracts.events import Event
from contracts.rollouts import RolloutResult, SessionSnapshot, ToolOutput
from tests.e2e.workers import PATIENCE_S, Deployment, Instance, Mortal

TASK = {"plan": [["adds", 1, 2], ["add", 3], ["adds", 4, 5, 6]]}
CALLS = 6
MOST = 2 + CALLS


def instances(count: int = 1, **resources: Any) -> dict[str, Instance]:
    """Pairs of an agent and the resources that it alone calls."""
    found: dict[str, Instance] = {}
    for number in range(count):
        found[f"draws{number}"] = Instance("resources", "draws", resources)
        found[f"puppet{number}"] = Instance("agents", "puppet", {"resources": f"draws{number}"})
    return found


async def drawn(deployment: Deployment, rollout: str) -> list[str]:
    """The draws in the session at its end, which must be those that the last call said."""
    result = await deployment.end(rollout)
    assert isinstance(result, RolloutResult), result
    recorded = [entry.event for entry in await deployment.bus.history(rollout) if entry.event.type == "tool.replied"]
    outputs = [msgspec.json.decode(await deployment.bus.fetch_data(event), type=ToolOutput) for event in recorded]
    said = [str(msgspec.json.decode(output.output)) for output in outputs]
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(said))
    assert msgspec.json.decode(result.extra["drawn"]) == said[-1]
    first, *draws = said[-1].split()
    assert len(first) == len(draws[1])
    return draws[::2]


@pytest.mark.parametrize("dies", [True, False], ids=["dies", "loses the log"])
async def test_a_session_is_exact_whatever_befalls_its_worker_at_whichever_publish(
    server: str, config: LogConfig, dies: bool
) -> None:
    """E5: no call is in it twice, none that was answered is missing, and each answer follows from the one before."""
    log = config.model_copy(update={"ack_wait_s": 1.0, "inline_limit": 1_024})
    async with Deployment(server, log, instances(2 * MOST + 1)) as deployment:

        async def live(number: int, fails_at: float) -> Mortal:
            rollout, name = f"r{number}", f"draws{number}"
            first = await deployment.start_one(name, worker=f"first{number}", fails_at=fails_at, dies=dies)
            await deployment.start(f"puppet{number}")
            await deployment.ask(rollout, TASK, agent=f"puppet{number}")
            if number:
                async with asyncio.timeout(PATIENCE_S):
                    await first.failed.wait()
                if dies:
                    await deployment.start_one(name, worker=f"second{number}")
            assert sorted(await drawn(deployment, rollout)) == ["1", "2", "3", "4", "5", "6"]
            return first

        assert (await live(0, inf)).published == MOST
        await asyncio.gather(*(live(number, number / 2) for number in range(1, 2 * MOST + 1)))
        await deployment.check(f"r{number}" for number in range(2 * MOST + 1))


async def test_a_call_begins_when_the_reply_of_the_one_before_is_in_the_log(server: str, config: LogConfig) -> None:
    """E5: else a later snapshot would have a call in it whose reply was lost, and which is then made again."""
    async with Deployment(server, config, instances()) as deployment:
        worker = await deployment.start_one("draws0")
        publish = worker.publish
        lost: list[str] = []
        overtaken = asyncio.Event()

        async def lose_the_first(event: Event) -> int:
            if event.type == "tool.replied" and not lost:
                lost.append(event.callkey)
                await asyncio.wait({asyncio.create_task(overtaken.wait())}, timeout=0.3)
                raise Unreachable("the log is away")
            if event.type == "tool.replied" and event.callkey != lost[0]:
                overtaken.set()
            return await publish(event)

        worker.publish = lose_the_first  # type: ignore[method-assign]
        await deployment.start("puppet0")
        await deployment.ask("r", {"plan": [["adds", 1, 2, 3]]}, agent="puppet0")
        assert sorted(await drawn(deployment, "r")) == ["1", "2", "3"]
        assert lost
        await deployment.check(["r"])


async def test_sessions_that_a_worker_has_no_room_for_are_exact(server: str, config: LogConfig) -> None:
    """Each call finds its session gone, on its own worker."""
    rollouts = [f"r{number}" for number in range(8)]
    async with Deployment(server, config, instances(max_sessions=1)) as deployment:
        await deployment.start("draws0", "puppet0")
        for rollout in rollouts:
            await deployment.ask(rollout, TASK, agent="puppet0")
        for rollout in rollouts:
            assert sorted(await drawn(deployment, rollout)) == ["1", "2", "3", "4", "5", "6"]
        await deployment.check(rollouts)


async def test_a_worker_whose_call_another_has_answered_goes_on_with_what_that_one_left(
    server: str, config: LogConfig
) -> None:
    """E6: the first reply stands, so its snapshot is the session, also for who holds another one in memory."""
    async with Deployment(server, config, instances()) as deployment:
        worker = await deployment.start_one("draws0")
        publish = worker.publish
        overtaken: list[str] = []

        async def publish_late(event: Event) -> int:
            if event.type == "tool.replied" and not overtaken:
                overtaken.append(event.callkey)
                output = ToolOutput(
                    output=msgspec.Raw(b'"%s 1 %s"' % (b"0" * 32, b"1" * 32)),
                    snapshot=SessionSnapshot(
                        calls=1, state=msgspec.Raw(b'{"drawn":["%s","1 %s"],"fill":[]}' % (b"0" * 32, b"1" * 32))
                    ),
                )
                other = deployment.bus.event(
                    event.type,
                    event.subject,
                    msgspec.json.encode(output),
                    rolloutid=event.rolloutid,
                    callkey=event.callkey,
                    causationid=event.causationid,
                )
                await deployment.bus.publish(other)
            return await publish(event)

        worker.publish = publish_late  # type: ignore[method-assign]
        await deployment.start("puppet0")
        await deployment.ask("r", {"plan": [["adds", 1, 2], ["add", 3]]}, agent="puppet0")
        assert sorted(await drawn(deployment, "r")) == ["1", "2", "3"]
        assert overtaken
        await deployment.check(["r"])


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("raise", "Draws.snapshot raised OSError: the disk is full"),
        ("set", "Draws.snapshot returned what JSON does not give back"),
        ("large", "is over log.blob_limit, 50,000 bytes"),
    ],
)
async def test_a_call_without_a_snapshot_fails_with_the_reason_and_is_not_in_the_session(
    server: str, config: LogConfig, how: str, reason: str
) -> None:
    """The agent may go on without it: the session is as it was before."""
    plan = [["add", 1], ["catch", [["tool", "spoil", {"how": how}]]], ["add", 2]]
    async with Deployment(server, config.model_copy(update={"blob_limit": 50_000}), instances()) as deployment:
        await deployment.start("draws0", "puppet0")
        await deployment.ask("r", {"plan": plan}, agent="puppet0")
        assert await drawn(deployment, "r") == ["1", "2"]
        error = await deployment.replied("r", "m_2")
        assert error["kind"] == "verify_error"
        assert reason in error["message"]
        await deployment.check(["r"])


async def test_a_session_that_two_workers_served_at_once_is_lost_and_not_guessed(
    server: str, config: LogConfig
) -> None:
    """A call that was answered by a worker whose session had not all the calls before it ends in a typed error."""
    async with Deployment(server, config, instances()) as deployment:
        worker = await deployment.start_one("draws0")
        publish = worker.publish

        async def publish_as_if_alone(event: Event) -> int:
            if event.type == "tool.replied" and event.callkey == "m_2":
                output = msgspec.json.decode(msgspec.json.encode(event.data), type=ToolOutput)
                assert output.snapshot is not None
                stale = msgspec.structs.replace(output, snapshot=msgspec.structs.replace(output.snapshot, calls=1))
                event = msgspec.structs.replace(event, data=msgspec.Raw(msgspec.json.encode(stale)))
                worker.served._runtime.drop("r")
            return await publish(event)

        worker.publish = publish_as_if_alone  # type: ignore[method-assign]
        await deployment.start("puppet0")
        await deployment.ask("r", {"plan": [["add", 1], ["add", 2], ["add", 3]]}, agent="puppet0")
        failure = await deployment.failure("r")
        assert failure.kind == "unavailable"
        assert "2 calls on it were answered, and its last snapshot has 1 in it" in failure.message
        await deployment.check(["r"])
