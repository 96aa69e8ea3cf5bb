"""Reading the log: histories, scans, the last of a subject, and feeds of finished rollouts."""

import asyncio

import pytest

from bus import Bus, LogConfig
from contracts.events import Event
from tests.bus.events import ended, models, reply, request, take, until


async def test_a_history_has_every_form_of_event_of_its_rollout_in_order_and_no_other(bus: Bus) -> None:
    subjects = bus.subjects
    wanted: list[Event] = []
    for rollout in ("r1", "r11", "r"):
        events = [
            request(bus, rollout),
            request(bus, rollout, "m_1--m_0", instance="judge"),
            reply(bus, rollout),
            reply(bus, rollout, "m_1--m_0", worker="another"),
            bus.event("rollout.adopted", subjects.adopted("run", rollout, 1), rolloutid=rollout),
            ended(bus, "run", rollout),
            bus.event("rollout.revised", subjects.revised("run", rollout, 1), rolloutid=rollout),
            bus.event("dead.lettered", subjects.dead(0, "models", "policy", rollout, "7"), rolloutid=rollout),
        ]
        for event in events:
            await bus.publish(event)
        wanted = events if rollout == "r1" else wanted
    history = await bus.history("r1")
    assert [recorded.event for recorded in history] == wanted
    assert [recorded.seq for recorded in history] == sorted(recorded.seq for recorded in history)
    assert await bus.history("nobody") == []


@pytest.mark.parametrize("count", [1_024, 1_030])
async def test_a_history_longer_than_the_server_answers_at_once_is_complete(bus: Bus, count: int) -> None:
    for number in range(count):
        await bus.post(request(bus, "r1", f"m_{number}"))
    await until(lambda: bus.in_flight == 0)
    assert [recorded.event.callkey for recorded in await bus.history("r1")] == [f"m_{n}" for n in range(count)]


async def test_a_history_of_many_megabytes_comes_page_by_page(bus: Bus) -> None:
    data = b'"' + b"x" * 60_000 + b'"'
    for number in range(300):
        await bus.post(request(bus, "r1", f"m_{number}", data=data))
    await until(lambda: bus.in_flight == 0)
    assert [recorded.event.callkey for recorded in await bus.history("r1")] == [f"m_{n}" for n in range(300)]


async def test_a_history_leaves_out_what_is_no_event(bus: Bus) -> None:
    bus._connection.send(bus.subjects.reply("w", "r1", "m_0").encode(), b"", b"nonsense")
    event = request(bus, "r1")
    await bus.publish(event)
    assert [recorded.event for recorded in await bus.history("r1")] == [event]


async def test_a_scan_ends_at_the_end_that_was_when_it_began(bus: Bus) -> None:
    for number in range(50):
        await bus.publish(request(bus, f"r{number}"))
    seen = []
    async for recorded in bus.scan():
        seen.append(recorded.event.rolloutid)
        await bus.publish(request(bus, f"late{len(seen)}"))
    assert seen == [f"r{number}" for number in range(50)]


async def test_a_scan_is_filtered_and_starts_where_it_is_told(bus: Bus) -> None:
    for number in range(10):
        await bus.publish(request(bus, f"r{number}"))
        await bus.publish(reply(bus, f"r{number}"))
    replies = [recorded async for recorded in bus.scan(bus.subjects.replies_of(0, "caller"), start=11)]
    assert [recorded.event.rolloutid for recorded in replies] == [f"r{number}" for number in range(5, 10)]
    assert [recorded async for recorded in bus.scan(bus.subjects.replies_of(0, "nobody"))] == []
    assert [recorded async for recorded in bus.scan(start=1000)] == []


async def test_a_scan_of_a_log_larger_than_its_buffer_is_complete(bus: Bus) -> None:
    for number in range(9_000):
        await bus.post(request(bus, f"r{number}"))
    await until(lambda: bus.in_flight == 0)
    seen = 0
    async for recorded in bus.scan():
        assert recorded.seq == seen + 1
        seen += 1
        if seen % 1_000 == 0:
            await asyncio.sleep(0.01)  # a reader that is slower than the server
    assert seen == 9_000


async def test_a_scan_that_follows_goes_on_with_what_comes(bus: Bus) -> None:
    await bus.publish(request(bus, "r0"))
    seen = []
    async for recorded in bus.scan(follow=True):
        seen.append(recorded.event.rolloutid)
        if len(seen) == 5:
            break
        await bus.publish(request(bus, f"r{len(seen)}"))
    assert seen == [f"r{number}" for number in range(5)]


async def test_the_last_event_of_a_filter_is_the_newest_one(bus: Bus) -> None:
    assert await bus.last(bus.subjects.policy("policy", 1)) is None
    for version in (1, 2, 3):
        await bus.publish(bus.event("policy.updated", bus.subjects.policy("policy", version), b"{}"))
    exact, newest = (
        await bus.last(bus.subjects.policy("policy", 2)),
        await bus.last(f"{bus.config.namespace}.0.policy.>"),
    )
    assert exact is not None
    assert newest is not None
    assert exact.subject.endswith(".2")
    assert newest.subject.endswith(".3")


async def test_all_partitions_of_a_log_are_served(url: str, config: LogConfig) -> None:
    config = config.model_copy(update={"partitions": 3})
    async with await Bus.connect(url, config, name="test/parts/w1", writer="w1") as bus:
        await bus.ensure_log()
        heard: list[str] = []
        await bus.replies("caller", lambda recorded: heard.append(recorded.event.rolloutid))
        pool = await models(bus)
        names = [f"r{number}" for number in range(60)]
        for name in names:
            await bus.publish(request(bus, name))
        assert {bus.subjects.partition(name) for name in names} == {0, 1, 2}
        for delivery in await take(pool, 60):
            await bus.publish(reply(bus, delivery.event.rolloutid))
            await bus.publish(ended(bus, "run", delivery.event.rolloutid))
            delivery.ack()
        await until(lambda: sorted(heard) == sorted(names))
        assert len(await bus.history("r7")) == 3
