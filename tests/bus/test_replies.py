"""Replies: in the log's order, each once, none missing, for this worker and for those it adopted from."""

import asyncio

import msgspec
import pytest

from bus import Bus, LogConfig, publish
from bus.deadletter import DeadLetterData
from contracts.codec import encode
from contracts.events import Recorded
from tests.bus.conftest import Open
from tests.bus.events import reply, request, until
from tests.bus.proxy import Proxy


async def test_replies_come_in_the_order_of_the_log_and_only_those_to_this_worker(bus: Bus) -> None:
    heard: list[Recorded] = []
    await bus.replies("caller", heard.append)
    for number in range(300):
        await bus.post(reply(bus, f"r{number}"))
        await bus.post(reply(bus, f"r{number}", worker="another"))
    await until(lambda: len(heard) == 300)
    assert [recorded.event.rolloutid for recorded in heard] == [f"r{number}" for number in range(300)]
    assert [recorded.seq for recorded in heard] == sorted(recorded.seq for recorded in heard)
    assert heard[0].raw == encode(heard[0].event)


async def test_replies_from_before_the_subscription_do_not_come(bus: Bus) -> None:
    await bus.publish(reply(bus, "old"))
    heard: list[Recorded] = []
    await bus.replies("caller", heard.append)
    await bus.publish(reply(bus, "new"))
    await until(lambda: bool(heard))
    assert [recorded.event.rolloutid for recorded in heard] == ["new"]


async def test_a_broken_connection_loses_and_repeats_no_reply(proxy: Proxy, server: str, open_bus: Open) -> None:
    heard: list[Recorded] = []
    bus, writer = await open_bus(proxy.url), await open_bus(server)
    await bus.replies("caller", heard.append)
    for number in range(600):
        await writer.post(reply(writer, f"r{number}"))
        if number % 200 == 100:
            proxy.deaf = True
            await asyncio.sleep(0.01)
            proxy.cut()
            proxy.deaf = False
    await until(lambda: len(heard) >= 600)
    assert [recorded.event.rolloutid for recorded in heard] == [f"r{number}" for number in range(600)]


async def test_replies_swallowed_on_a_living_connection_are_noticed_and_come(
    proxy: Proxy, server: str, open_bus: Open
) -> None:
    """A gap is found by the next message, or by the heartbeat when there is none."""
    heard: list[Recorded] = []
    bus, writer = await open_bus(proxy.url), await open_bus(server)
    await bus.replies("caller", heard.append)
    for swallowed in ("r1", "r2"):
        proxy.swallowed.clear()
        proxy.deaf = True
        await writer.publish(reply(writer, swallowed))
        await proxy.swallowed.wait()
        proxy.deaf = False
        if swallowed == "r1":
            await writer.publish(reply(writer, "after"))
            await until(lambda: len(heard) == 2)
    await until(lambda: len(heard) == 3)
    assert [recorded.event.rolloutid for recorded in heard] == ["r1", "after", "r2"]


async def test_an_adopted_workers_replies_come_in_one_order_with_the_own(bus: Bus) -> None:
    heard: list[Recorded] = []
    replies = await bus.replies("new", heard.append)
    await bus.publish(reply(bus, "before", worker="new"))
    await until(lambda: len(heard) == 1)
    await replies.subscribe_also("old")
    for number in range(200):
        await bus.post(reply(bus, f"r{number}", worker="old" if number % 3 else "new"))
    await until(lambda: len(heard) == 201)
    assert [recorded.event.rolloutid for recorded in heard[1:]] == [f"r{number}" for number in range(200)]


async def test_an_adopted_workers_replies_can_come_from_the_beginning_and_the_own_are_not_repeated(bus: Bus) -> None:
    heard: list[Recorded] = []
    replies = await bus.replies("new", heard.append)
    for number in range(50):
        await bus.post(reply(bus, f"r{number}", worker="old" if number % 2 else "new"))
    await until(lambda: len(heard) == 25)
    await replies.subscribe_also("old", start=1)
    for number in range(50, 60):
        await bus.post(reply(bus, f"r{number}", worker="old" if number % 2 else "new"))
    await until(lambda: len(heard) == 60)
    own = [f"r{number}" for number in range(0, 50, 2)]
    others = [f"r{number}" for number in range(1, 50, 2)]
    assert [recorded.event.rolloutid for recorded in heard] == [*own, *others, *(f"r{n}" for n in range(50, 60))]


async def test_of_two_that_ask_for_the_same_worker_beside_each_other_neither_is_told_before_all_of_it_is_heard(
    url: str, config: LogConfig
) -> None:
    """B6, E5: two rollouts are adopted from one worker; a reply to the second one would never be heard."""
    config = config.model_copy(update={"partitions": 8, "namespace": f"{config.namespace}p"})
    async with await Bus.connect(url, config, name="test/replies/new", writer="new") as bus:
        await bus.ensure_log()
        names = {bus.subjects.partition(name): name for name in (f"r{number}" for number in range(200))}
        heard: list[str] = []
        replies = await bus.replies("new", lambda recorded: heard.append(recorded.subject))
        first = asyncio.create_task(replies.subscribe_also("old"))
        await asyncio.create_task(replies.subscribe_also("old"))
        for worker in ("old", "new"):
            for name in names.values():
                await bus.publish(reply(bus, name, worker=worker))
        await until(lambda: sum(".new." in subject for subject in heard) == 8)
        await first
        assert sum(".old." in subject for subject in heard) == 8


async def test_subscribing_to_the_same_worker_twice_changes_nothing(bus: Bus) -> None:
    heard: list[Recorded] = []
    replies = await bus.replies("new", heard.append)
    await replies.subscribe_also("old")
    await replies.subscribe_also("old")
    await replies.subscribe_also("new")
    await bus.publish(reply(bus, "r1", worker="old"))
    await until(lambda: bool(heard))
    await replies.stop()
    await bus.publish(reply(bus, "r2", worker="old"))
    assert len(heard) == 1


async def test_a_reply_that_cannot_be_read_becomes_a_dead_letter_and_the_next_one_comes(bus: Bus) -> None:
    """B5."""
    heard: list[Recorded] = []
    await bus.replies("caller", heard.append)
    raw = encode(reply(bus, "r1"))
    for subject, data in (
        (bus.subjects.reply("caller", "r1", "m_0"), b"nonsense"),
        (bus.subjects.reply("caller", "r2", "m_0"), raw),
    ):
        bus._connection.send(subject.encode(), b"", data)
    await bus.publish(reply(bus, "r3"))
    await until(lambda: bool(heard) and not bus._burials)
    assert [recorded.event.rolloutid for recorded in heard] == ["r3"]
    letters = [
        msgspec.json.decode(recorded.event.data, type=DeadLetterData)
        async for recorded in bus.scan(f"{bus.config.namespace}.0.dead.>")
    ]
    assert {letter.reason: letter.raw for letter in letters} == {"undecodable": b"nonsense", "subject_mismatch": raw}


async def test_a_callback_that_raises_does_not_stop_the_replies(bus: Bus) -> None:
    heard: list[str] = []

    def on_reply(recorded: Recorded) -> None:
        heard.append(recorded.event.rolloutid)
        if recorded.event.rolloutid == "r1":
            raise RuntimeError("a fault of the worker")

    await bus.replies("caller", on_reply)
    for rollout in ("r1", "r2"):
        await bus.publish(reply(bus, rollout))
    await until(lambda: heard == ["r1", "r2"])


async def test_a_worker_that_publishes_from_its_callback_hears_the_answer(bus: Bus) -> None:
    heard: list[str] = []
    done: list[asyncio.Task[int]] = []

    def on_reply(recorded: Recorded) -> None:
        heard.append(recorded.event.callkey)
        if len(heard) < 20:
            done.append(asyncio.create_task(bus.publish(reply(bus, "r1", f"m_{len(heard)}"))))

    await bus.replies("caller", on_reply)
    await bus.publish(request(bus, "r1"))
    await bus.publish(reply(bus, "r1"))
    await until(lambda: len(heard) == 20)
    assert heard == [f"m_{number}" for number in range(20)]


async def test_a_reply_is_heard_when_there_is_room_for_what_it_causes(
    bus: Bus, server: str, open_bus: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B3: until then it waits as the bytes that it came as, and the order stays that of the log."""
    writer = await open_bus(server)
    monkeypatch.setattr(publish, "MAX_IN_FLIGHT", 4)
    heard: list[str] = []
    sent: list[asyncio.Future[int] | None] = []

    def on_reply(recorded: Recorded) -> None:
        heard.append(recorded.event.rolloutid)
        sent.append(bus.post_at_once(request(bus, recorded.event.rolloutid)))

    await bus.replies("caller", on_reply)
    await asyncio.gather(*(writer.publish(reply(writer, f"r{number}")) for number in range(300)))
    await until(lambda: len(heard) == 300)
    in_log = [found.event.rolloutid async for found in bus.scan(bus.subjects.replies_of(0, "caller"))]
    assert heard == in_log
    assert None not in sent
    await asyncio.gather(*(each for each in sent if each is not None))
