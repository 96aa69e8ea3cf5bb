"""How much a pool, and each of its workers, holds at a time; and nobody is stopped by one slow rollout."""

import asyncio

from bus import Bus
from tests.bus.conftest import Open
from tests.bus.events import models, request, take


async def test_no_more_is_fetched_ahead_than_the_batch(bus: Bus) -> None:
    for number in range(100):
        await bus.publish(request(bus, f"r{number}"))
    pool = await models(bus, batch=16)
    most = 0
    for _ in range(100):
        (delivery,) = await take(pool)
        await bus.history("r0")  # time for what was asked for to come
        most = max(most, pool.held)
        delivery.ack()
    assert most <= 17  # a batch, and the one that was begun


async def test_one_slow_rollout_never_stops_the_others(bus: Bus) -> None:
    """B8."""
    pool = await models(bus, max_ack_pending=3, batch=8)
    for number in range(50):
        await bus.publish(request(bus, f"r{number}"))
    (slow,) = await take(pool)
    for _ in range(49):
        (delivery,) = await take(pool)
        delivery.ack()
    assert pool.held == 1
    slow.ack()


async def test_a_worker_holds_no_more_than_it_has_places_for(bus: Bus, url: str, open_bus: Open) -> None:
    """B8: whoever has a free place gets what a busy one could not begin; a place that is lent counts as free."""
    busy = await models(bus, places=1)
    await bus.publish(request(bus, "slow"))
    (slow,) = await take(busy)
    for number in range(20):
        await bus.publish(request(bus, f"r{number}"))
    idle = await models(await open_bus(url), places=1)
    got = []
    for _ in range(19):
        (delivery,) = await take(idle)
        got.append(delivery.event.rolloutid)
        delivery.ack()
    (last,) = await take(idle)
    assert [*got, last.event.rolloutid] == [f"r{number}" for number in range(20)]
    await bus.publish(request(bus, "quick"))
    busy.lend(1)
    (second,) = await take(busy)
    busy.lend(-1)  # now it holds more than it has places for
    second.ack()
    await bus.publish(request(bus, "r20"))
    last.ack()
    (delivery,) = await take(idle)
    assert (delivery.event.rolloutid, busy.held) == ("r20", 1)
    slow.ack()


async def test_what_comes_when_its_place_was_taken_back_goes_to_another_worker(
    bus: Bus, url: str, open_bus: Open
) -> None:
    """B8: it was asked for while a call waited, and comes when that one has gone on."""
    busy = await models(bus, places=1)
    await bus.publish(request(bus, "slow"))
    (slow,) = await take(busy)
    busy.lend(1)
    busy.lend(-1)
    await bus.publish(request(bus, "r1"))
    (delivery,) = await take(await models(await open_bus(url), places=1))
    assert (delivery.event.rolloutid, delivery.num_delivered, busy.held) == ("r1", 2, 1)
    slow.ack()


async def test_one_place_serves_every_slot(bus: Bus) -> None:
    """B8: an idle slot does not keep the place from another one, nor a busy one."""
    pool = await bus.pool("resources", "game", [0, 1, 2], types=["tool.requested"], places=1)
    rollouts = [f"r{number}" for number in range(30)]
    slots = set()
    for rollout in rollouts:
        subject = bus.subjects.request("resources", "game", 3, rollout, "m_0")
        slots.add(subject.split(".")[4])
        replyto = bus.subjects.reply("caller", rollout, "m_0")
        await bus.publish(bus.event("tool.requested", subject, rolloutid=rollout, callkey="m_0", replyto=replyto))
    got = []
    for _ in rollouts:
        (delivery,) = await take(pool)
        got.append(delivery.event.rolloutid)
        delivery.ack()
    assert len(slots) == 3
    assert sorted(got) == sorted(rollouts)


async def test_pulls_wait_while_the_pool_holds_as_much_as_it_may(bus: Bus) -> None:
    """B8."""
    pool = await models(bus, max_ack_pending=2, batch=8)
    for number in range(3):
        await bus.publish(request(bus, f"r{number}"))
    first, second = await take(pool, 2)
    third = asyncio.create_task(anext(pool))
    await bus.history("r0")
    assert not third.done()
    first.ack()
    assert (await asyncio.wait_for(third, 10)).event.rolloutid == "r2"
    second.ack()
