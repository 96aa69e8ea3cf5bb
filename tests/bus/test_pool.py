"""Pools: each delivery settled once, poison buried, nothing held by the dead."""

import asyncio
import base64
import signal
import subprocess
import sys
import time

import msgspec
import pytest

from bus import Bus, Conflict, DeadLetter, PayloadTooLarge, Unreachable
from bus.deadletter import DeadLetterData
from contracts.codec import encode
from contracts.events import Event
from tests.bus.conftest import Open
from tests.bus.events import models, reply, request, take, until

DIES_BETWEEN_REPLY_AND_ACK = """
import asyncio, os, signal, sys
from bus import Bus, LogConfig
async def main(url, namespace):
    bus = await Bus.connect(url, LogConfig(namespace=namespace), name="models/policy/dying", writer="dying")
    pool = await bus.pool("models", "policy", [0], types=["model.requested"], ack_wait_s=1.0)
    async for delivery in pool:
        event = delivery.event
        await bus.publish(bus.event("model.replied", event.replyto, b"1", rolloutid="r1", callkey="m_0"))
        os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main(*sys.argv[1:]))
"""


async def dead_letters(bus: Bus) -> list[DeadLetterData]:
    """All that are in the log."""
    return [
        msgspec.json.decode(await bus.fetch_data(recorded.event), type=DeadLetterData)
        async for recorded in bus.scan(f"{bus.config.namespace}.0.dead.>")
    ]


async def test_each_event_is_delivered_to_one_of_the_workers(bus: Bus, url: str, open_bus: Open) -> None:
    other = await open_bus(url)
    pools = [await models(bus, batch=8), await models(other, batch=8)]
    for number in range(200):
        await bus.publish(request(bus, f"r{number}"))
    got: list[str] = []

    async def work(number: int) -> None:
        async for delivery in pools[number]:
            got.append(delivery.event.rolloutid)
            delivery.ack()

    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(work(number)) for number in range(2)]
        await until(lambda: len(got) >= 200)
        for worker in workers:
            worker.cancel()
    assert sorted(got) == sorted(f"r{number}" for number in range(200))


async def test_death_between_reply_and_ack_means_redelivery_and_no_second_effect(bus: Bus, url: str) -> None:
    """B4: the reply is in the log before the ack, so the next worker finds it, and could not write another."""
    await bus.publish(request(bus, "r1"))
    died = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", DIES_BETWEEN_REPLY_AND_ACK, url, bus.config.namespace], check=False
    )
    assert died.returncode == -signal.SIGKILL
    (delivery,) = await take(await models(bus, ack_wait_s=1.0))
    assert delivery.num_delivered == 2
    assert [recorded.event.type for recorded in await bus.history("r1")] == ["model.requested", "model.replied"]
    with pytest.raises(Conflict):
        await bus.publish(reply(bus, "r1"))
    delivery.ack()


def sent(event: Event) -> tuple[bytes, bytes, bytes]:
    """An event for a connection to send, without waiting for its ack."""
    return event.subject.encode(), b"", encode(event)


async def poison(bus: Bus, case: str) -> tuple[str, bytes]:
    """Subject and bytes of something that is no event of this subject."""
    good = request(bus, "bad")
    other = request(bus, "other")
    changed = msgspec.structs.replace
    raw = {
        "bytes": b"\xff\x00 not json",
        "no event": b'{"hello": 1}',
        "newer": encode(changed(good, dataschema="99")),
        "type": encode(changed(good, type="model.painted")),
        "subject": encode(other),
        "rollout": encode(changed(good, rolloutid="other")),
        "key": encode(changed(good, callkey="m_1")),
        "foreign reply": encode(changed(good, replyto="elsewhere.0.reply.w.bad.m_0")),
        "other's reply": encode(changed(good, replyto=other.replyto)),
    }[case]
    return good.subject, raw


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("bytes", "undecodable"),
        ("no event", "undecodable"),
        ("newer", "newer_version"),
        ("type", "unknown_type"),
        ("subject", "subject_mismatch"),
        ("rollout", "subject_mismatch"),
        ("key", "subject_mismatch"),
        ("foreign reply", "subject_mismatch"),
        ("other's reply", "subject_mismatch"),
    ],
)
async def test_poison_ends_in_a_dead_letter_and_the_pool_goes_on(bus: Bus, case: str, reason: str) -> None:
    """B5, B13."""
    subject, raw = await poison(bus, case)
    bus._connection.send(subject.encode(), b"", raw)
    good = request(bus, "good")
    await bus.publish(good)
    buried: list[DeadLetter] = []

    async def on_dead(letter: DeadLetter) -> None:
        buried.append(letter)

    pool = await bus.pool("models", "policy", [0], types=["model.requested"], on_dead=on_dead)
    (delivery,) = await take(pool)
    assert delivery.event == good
    delivery.ack()
    await until(lambda: bool(buried) and pool.held == 0)
    (letter,) = await dead_letters(bus)
    assert letter.reason == reason
    assert base64.b64decode(letter.raw_base64) == raw
    assert letter.subject == subject
    assert buried[0].raw == raw
    assert [recorded.event.type for recorded in await bus.history("bad")][-1] == "dead.lettered"


async def test_a_delivery_that_is_never_finished_ends_in_one_dead_letter(bus: Bus) -> None:
    """B6: and `on_dead` is where the worker ends the rollout; it hears of it after the letter is in the log."""
    await bus.publish(request(bus, "r1"))
    found: list[int] = []

    async def on_dead(letter: DeadLetter) -> None:
        assert letter.reason == "exhausted"
        assert letter.event is not None
        found.append(len(await dead_letters(bus)))
        if len(found) == 1:
            raise RuntimeError("the first attempt to end the rollout fails")

    pool = await bus.pool("models", "policy", [0], types=["model.requested"], max_deliver=3, on_dead=on_dead)
    counts = []
    for _ in range(3):
        (delivery,) = await take(pool)
        counts.append(delivery.num_delivered)
        delivery.nak(0.01)
    waiting = asyncio.create_task(anext(pool))
    await until(lambda: len(found) == 2 and pool.held == 0)
    assert counts == [1, 2, 3]
    assert found == [1, 1]
    waiting.cancel()


@pytest.mark.parametrize("delay", [0, -1])
async def test_a_negative_ack_without_a_delay_is_refused(bus: Bus, delay: float) -> None:
    """B7."""
    await bus.publish(request(bus, "r1"))
    (delivery,) = await take(await models(bus))
    with pytest.raises(ValueError, match="delay"):
        delivery.nak(delay)
    delivery.ack()


async def test_settling_again_after_a_redelivery_does_not_touch_the_new_delivery(bus: Bus) -> None:
    await bus.publish(request(bus, "r1"))
    pool = await models(bus)
    (first,) = await take(pool)
    first.nak(0.01)
    (second,) = await take(pool)
    first.ack()
    assert pool.held == 1
    second.ack()
    assert pool.held == 0


async def test_settling_twice_counts_once(bus: Bus) -> None:
    await bus.publish(request(bus, "r1"))
    await bus.publish(request(bus, "r2"))
    pool = await models(bus)
    first, _ = await take(pool, 2)
    first.ack()
    first.nak(0.01)
    assert pool.held == 1


async def test_what_was_delivered_before_the_process_stood_still_may_be_elsewhere(bus: Bus) -> None:
    """E6: what lies in the socket and what is in its hands; what comes later is new."""
    pool = await models(bus, ack_wait_s=0.6)
    await bus.publish(request(bus, "held"))
    (held,) = await take(pool)
    assert not held.redelivered
    bus._connection.send(*sent(request(bus, "sent")))
    bus._connection.wire._flush_now()
    time.sleep(0.4)  # noqa: ASYNC251 - the fault
    assert held.redelivered
    (delivery,) = await take(pool)
    assert (delivery.event.rolloutid, delivery.num_delivered, delivery.redelivered) == ("sent", 1, True)
    await until(lambda: not pool._pullers[0]._gaps)
    await bus.publish(request(bus, "later"))
    (later,) = await take(pool)
    assert not later.redelivered
    for each in (held, delivery, later):
        each.ack()


async def test_what_a_worker_holds_is_kept_alive_beyond_the_ack_wait(bus: Bus, url: str, open_bus: Open) -> None:
    other = await models(await open_bus(url), ack_wait_s=0.6)
    pool = await models(bus, ack_wait_s=0.6)
    await bus.publish(request(bus, "r1"))
    taking = [asyncio.create_task(anext(pool)), asyncio.create_task(anext(other))]
    done, rest = await asyncio.wait(taking, return_when=asyncio.FIRST_COMPLETED, timeout=10)
    again = asyncio.wait(rest, timeout=2.0)  # more than three times the ack wait
    assert (await again)[0] == set()
    assert done.pop().result().num_delivered == 1
    for task in rest:
        task.cancel()


async def test_stopping_returns_what_was_fetched_and_not_begun(bus: Bus, url: str, open_bus: Open) -> None:
    """B12: at once, not after the ack wait of 30 s; what is in progress stays with the worker."""
    for number in range(20):
        await bus.publish(request(bus, f"r{number}"))
    pool = await models(bus, batch=16)
    (begun,) = await take(pool)
    await until(lambda: pool.held == 16)
    await pool.stop()
    assert pool.held == 1
    assert [delivery async for delivery in pool] == []
    other = await models(await open_bus(url))
    rest = await take(other, 19)
    assert {delivery.event.rolloutid for delivery in rest} == {f"r{n}" for n in range(20)} - {begun.event.rolloutid}
    begun.ack()
    assert pool.held == 0


async def test_closing_returns_also_what_is_in_progress(bus: Bus, url: str, open_bus: Open) -> None:
    """B12: at once, for a worker that ends without finishing."""
    await bus.publish(request(bus, "r1"))
    pool = await models(bus)
    (delivery,) = await take(pool)
    await pool.close()
    (again,) = await take(await models(await open_bus(url)))
    assert again.num_delivered == 2
    delivery.ack()  # too late, and harmless
    again.ack()


async def test_nothing_is_held_by_a_dead_process_longer_than_the_ack_wait(bus: Bus, url: str, open_bus: Open) -> None:
    """B12: a connection that vanishes with all it had fetched."""
    dead = await open_bus(url)
    pool = await models(dead, ack_wait_s=1.5)
    await bus.publish(request(bus, "r1"))
    await until(lambda: pool.held == 1)
    delivered = time.monotonic()
    pool._holding._timer.cancel()
    dead._connection.wire._transport._io_writer.transport.abort()  # type: ignore[union-attr]
    (delivery,) = await take(await models(bus, ack_wait_s=1.5))
    assert time.monotonic() - delivered < 2 * 1.5, "one ack wait, and as much again for a busy machine"
    assert delivery.num_delivered == 2
    delivery.ack()


async def test_a_pool_goes_on_after_its_consumer_was_deleted(bus: Bus) -> None:
    pool = await models(bus)
    await bus.publish(request(bus, "r1"))
    (delivery,) = await take(pool)
    delivery.ack()
    await bus._connection.api(f"CONSUMER.DELETE.{bus.config.namespace}_0.models-policy-0", None, dict)
    await bus.publish(request(bus, "r2"))
    got = {delivery.event.rolloutid for delivery in await take(pool, 2)}
    assert got == {"r1", "r2"}  # a new consumer begins at the beginning: replies there are found by their conflict


async def test_slots_are_served_only_by_those_that_asked_for_them(bus: Bus) -> None:
    rollouts = [f"r{number}" for number in range(40)]
    pools = [await bus.pool("resources", "game", [slot], types=["tool.requested"]) for slot in range(2)]
    expected: list[set[str]] = [set(), set()]
    for rollout in rollouts:
        subject = bus.subjects.request("resources", "game", 2, rollout, "m_0")
        expected[int(subject.split(".")[4])].add(rollout)
        replyto = bus.subjects.reply("caller", rollout, "m_0")
        await bus.publish(bus.event("tool.requested", subject, rolloutid=rollout, callkey="m_0", replyto=replyto))
    for pool, wanted in zip(pools, expected, strict=True):
        assert {delivery.event.rolloutid for delivery in await take(pool, len(wanted))} == wanted
        assert len(wanted) > 5


async def follow(bus: Bus) -> None:
    async for _ in bus.scan(follow=True):
        pass


async def test_a_pool_and_a_scan_end_with_an_error_when_the_connection_is_lost_for_good(bus: Bus) -> None:
    """B3: nothing waits for ever."""
    waiting = asyncio.create_task(anext(await models(bus)))
    following = asyncio.create_task(follow(bus))
    await asyncio.sleep(0.05)
    await bus._connection.wire.close()  # as nats-py does when the server refuses the connection
    for task in (waiting, following):
        with pytest.raises(Unreachable):
            await asyncio.wait_for(task, 10)
    with pytest.raises(Unreachable):
        await bus.publish(request(bus, "r1"))


async def test_an_event_that_the_server_would_refuse_by_its_size_does_not_end_the_connection(bus: Bus) -> None:
    """B11."""
    event = msgspec.structs.replace(request(bus, "r1"), traceparent="x" * 2_000_000)
    with pytest.raises(PayloadTooLarge):
        await bus.publish(event)
    await bus.publish(request(bus, "r1"))
