"""What an operator is told of a log and its pools."""

import asyncio
import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

import bus.overview as overview_module
from bus import Bus, LogConfig
from bus.overview import overview
from contracts.ids import ROOT_CALL
from orchestrator.status import Observer
from tests.bus.events import ended, models, request, take


def rollout(bus: Bus, name: str) -> str:
    return bus.subjects.request("agents", "solver", 1, name, ROOT_CALL)


async def test_an_empty_log_is_all_zeros(bus: Bus) -> None:
    state = await overview(bus)
    assert (state.events, state.requested, state.ended, state.dead, state.pools) == (0, 0, 0, 0, ())


async def test_what_ends_while_it_is_counted_is_never_more_than_was_asked_for(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an operator reads that -1 rollouts are in flight."""
    count, asked = overview_module._count, itertools.count()

    async def counted(*what: Any) -> int:
        found = await count(*what)
        name = f"r{next(asked)}"
        await bus.publish(bus.event("rollout.requested", rollout(bus, name), b"{}", rolloutid=name))
        await bus.publish(ended(bus, "run", name))
        return found

    monkeypatch.setattr(overview_module, "_count", counted)
    state = await overview(bus)
    assert 0 <= state.ended <= state.requested


async def test_rollouts_events_and_what_waits_in_each_pool_are_counted(bus: Bus) -> None:
    for number in range(3):
        await bus.publish(bus.event("rollout.requested", rollout(bus, f"r{number}"), b"{}", rolloutid=f"r{number}"))
        await bus.publish(request(bus, f"r{number}"))
    await bus.publish(ended(bus, "run", "r0"))
    pool = await models(bus, batch=2)
    first, _ = await take(pool, 2)
    first.ack()
    state = await overview(bus)
    assert (state.events, state.requested, state.ended) == (7, 3, 1)
    (policy,) = state.pools
    assert (policy.kind, policy.instance) == ("models", "policy")
    assert policy.held + policy.waiting >= 2


async def test_the_oldest_request_that_waits_and_pools_that_nobody_serves_are_told(bus: Bus) -> None:
    early = request(bus, "r0")
    written = datetime.now(UTC) - timedelta(hours=1)
    await bus.publish(request(bus, "r1"))
    await bus.publish(msgspec.structs.replace(early, time=written))
    await bus.publish(request(bus, "r2", instance="judge"))
    pool = await models(bus, batch=1)
    (first,) = await take(pool)
    assert first.event.rolloutid == "r1"
    await pool.stop()
    state = await overview(bus, [("models", "judge"), ("models", "policy"), ("resources", "quiz")])
    found = {each.instance: each for each in state.pools}
    assert (found["judge"].waiting, found["judge"].served) == (1, frozenset())
    assert (found["quiz"].waiting, found["quiz"].oldest_s) == (0, None)
    policy = found["policy"]
    if policy.waiting:  # else the worker was sent it before it stopped
        assert policy.oldest_s is not None
        assert 3600 <= policy.oldest_s < 3700


async def test_a_pool_is_served_by_workers_that_are_busy_and_not_by_those_that_died(
    server: str, config: LogConfig, bus: Bus
) -> None:
    """Else `status` shows workers, and a run waits without a word, until somebody starts some."""
    await bus.publish(request(bus, "r0"))
    async with await Bus.connect(server, config, name="worker", writer="worker") as worker:
        pool = await models(worker, batch=1, places=1)
        await take(pool)
        (busy,) = (await overview(bus)).pools
        assert (busy.held, busy.served) == (1, frozenset({0}))
    async with asyncio.timeout(10):
        while (await overview(bus)).pools[0].served:  # noqa: ASYNC110 - a server tells nobody who is gone
            await asyncio.sleep(0.01)
    (died,) = (await overview(bus)).pools
    assert (died.held, died.served) == (1, frozenset())


async def test_rates_are_between_two_looks_and_a_letter_that_is_settled_is_not_counted(bus: Bus) -> None:
    observer = Observer(bus, "here", workers=["policy-0", "policy-1"], store=None)
    pool = await models(bus)
    first = await observer.look()
    assert (first.ended_per_s, first.looked_s, first.pools[0].per_s) == (None, 0.0, None)
    for number in range(4):
        await bus.publish(request(bus, f"r{number}"))
    for delivery in await take(pool, 4):
        delivery.ack()
    await bus.publish(ended(bus, "run", "r0"))
    letter = bus.event("dead.lettered", bus.subjects.dead(0, "models", "policy", "r1", "7"), b"{}", rolloutid="r1")
    await bus.publish(letter)
    second = await observer.look()
    assert second.dead_letters == 1
    await bus.publish(bus.event("dead.settled", bus.subjects.settled(letter.subject), b"{}", rolloutid="r1"))
    third = await observer.look()
    assert third.dead_letters == 0
    assert third.pools[0].workers == 2
    assert third.pools[0].served
    at_rest = await Observer(bus, "here", workers=[], store=None, at_rest=True).look()
    assert not at_rest.pools[0].served, "who served it when its server ended is gone"
    rates = [each.ended_per_s or 0.0 for each in (second, third)]
    assert rates[0] > 0
    assert second.events_per_s
    assert (second.log_limit, second.log_used, second.free_bytes) == (None, None, None)


async def test_the_log_is_told_against_its_bound(url: str, config: LogConfig) -> None:
    bounded = config.model_copy(update={"max_bytes": 1_000_000})
    async with await Bus.connect(url, bounded, name="test", writer="w") as bus:
        await bus.ensure_log()
        await bus.publish(request(bus, "r0", data=b'"' + b"x" * 50_000 + b'"'))
        found = await Observer(bus, "here", workers=None, store=None).look()
    assert found.log_limit == 1_000_000
    assert found.log_used is not None
    assert 0.05 <= found.log_used < 0.1
