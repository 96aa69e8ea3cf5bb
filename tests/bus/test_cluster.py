"""Three servers and replicas of each event: first writer wins there too, and a server may go."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from bus import Bus, Conflict, LogConfig
from contracts.events import Recorded
from tests.bus.events import models, reply, request, until
from tests.cluster import Cluster, running_cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with running_cluster(tmp_path) as cluster:
        yield cluster


async def test_a_replicated_log_keeps_the_promises_and_survives_the_loss_of_a_server(cluster: Cluster) -> None:
    """B1, B2, B3, B10 as the clustered server answers: one start of the cluster for all of them."""
    config = LogConfig(durability="replicated")
    buses = [
        await Bus.connect(url, config, name="test/cluster/w", writer=f"w{n}") for n, url in enumerate(cluster.urls)
    ]
    try:
        await buses[0].ensure_log()
        await racing(buses)
        await lost_acks(buses[1])
        await large_data(buses)
        await losing_a_server(cluster, buses)
    finally:
        for bus in buses:
            await bus.close(0.1)


async def racing(buses: list[Bus]) -> None:
    """Of racing publishes through three servers exactly one is stored; the others learn which."""
    for number in range(15):
        events = [request(bus, f"race{number}") for bus in buses for _ in range(2)]
        owners = [bus for bus in buses for _ in range(2)]
        results = await asyncio.gather(
            *(bus.publish(event) for bus, event in zip(owners, events, strict=True)), return_exceptions=True
        )
        winners = [event.id for event, result in zip(events, results, strict=True) if isinstance(result, int)]
        assert len(winners) == 1
        losers = [result for result in results if isinstance(result, Conflict)]
        assert [loser.stored.event.id for loser in losers] == winners * 5


async def lost_acks(bus: Bus) -> None:
    """The same event published several times at once: each of them is a success with one sequence."""
    for number in range(8):
        event = request(bus, f"again{number}")
        assert len(set(await asyncio.gather(*(bus.publish(event) for _ in range(4))))) == 1


async def large_data(buses: list[Bus]) -> None:
    """It is read as soon as it is stored, whichever server is asked."""
    for number in range(40):
        data = b"%d " % number * 50_000
        reference = await buses[0].store_blob(data)
        assert await asyncio.gather(*(bus.fetch_blob(reference) for bus in buses for _ in range(3))) == [data] * 9


async def losing_a_server(cluster: Cluster, buses: list[Bus]) -> None:
    """Calls are answered, each once and in order, while the server that most hang on is killed."""
    config = buses[0].config
    caller = await Bus.connect(cluster.url, config, name="test/cluster/caller", writer="caller")
    callee = await Bus.connect(cluster.url, config, name="test/cluster/callee", writer="callee")
    heard: list[Recorded] = []
    await caller.replies("caller", heard.append)
    pool = await models(callee, ack_wait_s=2.0, instance="clustered")

    async def answer() -> None:
        async for delivery in pool:
            if not delivery.redelivered or await callee.last(delivery.event.replyto) is None:
                with suppress(Conflict):  # answered before, and read from a replica that lags
                    await callee.publish(reply(callee, delivery.event.rolloutid))
            delivery.ack()

    acked: list[int] = []

    async def call() -> None:
        for number in range(400):
            seq = await caller.publish(request(caller, f"c{number}", instance="clustered"))
            acked.append(seq)

    async with asyncio.TaskGroup() as group:
        answering = group.create_task(answer())
        group.create_task(call())
        await until(lambda: len(heard) >= 100)
        await cluster.kill(await cluster.leader(caller))
        async with asyncio.timeout(45):
            while len(heard) < 400:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        answering.cancel()
    in_log = [recorded.seq async for recorded in caller.scan(f"{config.namespace}.0.models.clustered.>")]
    assert in_log == acked, "no acked event is missing, none is there twice"
    assert sorted(recorded.event.rolloutid for recorded in heard) == sorted(f"c{number}" for number in range(400))
    assert [recorded.seq for recorded in heard] == sorted(recorded.seq for recorded in heard)
    await caller.close(0.1)
    await callee.close(0.1)
