"""Three servers and replicas of each event: first writer wins there too, and a server may go."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bus import Bus, Conflict, LogConfig
from bus.connection import connect
from bus.errors import Unreachable
from bus.server import find_binary
from contracts.events import Recorded
from tests.bus.events import models, reply, request, until

SERVERS = 3


class Cluster:
    """Three nats-servers on loopback."""

    def __init__(self, directory: Path) -> None:
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2 * SERVERS)]
        ports = [one.getsockname()[1] for one in sockets]
        for one in sockets:
            one.close()
        self.ports, self._routes = ports[:SERVERS], ports[SERVERS:]
        self.urls = [f"nats://127.0.0.1:{port}" for port in self.ports]
        self.url = ",".join(self.urls)
        self._directory = directory
        self.processes: dict[int, asyncio.subprocess.Process] = {}

    async def start(self, number: int) -> None:
        """One of the servers."""
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in self._routes)
        store = self._directory / f"store{number}"
        file = self._directory / f"{number}.conf"
        file.write_text(
            f'server_name: s{number}\nlisten: "127.0.0.1:{self.ports[number]}"\nlog_file: "{store}.log"\n'
            f'jetstream {{ store_dir: "{store}" }}\n'
            f'cluster {{ name: test, listen: "127.0.0.1:{self._routes[number]}", routes: [{routes}] }}\n'
        )
        self.processes[number] = await asyncio.create_subprocess_exec(find_binary(None), "-c", file)

    async def kill(self, number: int) -> None:
        process = self.processes.pop(number)
        process.kill()
        await process.wait()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path)
    for number in range(SERVERS):
        await cluster.start(number)
    async with asyncio.timeout(30):
        while True:
            connection = await connect(cluster.url, name="test/ready")
            try:
                while b'"error"' in (await connection.request("$JS.API.INFO", b"", 0.5)).data:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
                break
            except Unreachable:
                await asyncio.sleep(0.05)
            finally:
                await connection.close()
    yield cluster
    for number in list(cluster.processes):
        await cluster.kill(number)


async def test_a_replicated_log_keeps_the_promises_and_survives_the_loss_of_a_server(cluster: Cluster) -> None:
    """B1, B2, B3, B10 as the clustered server answers: one start of the cluster for all of them."""
    config = LogConfig(replicas=3)
    buses = [
        await Bus.connect(url, config, name="test/cluster/w", writer=f"w{n}") for n, url in enumerate(cluster.urls)
    ]
    try:
        await buses[0].ensure_log()
        await racing(buses)
        await lost_acks(buses[1])
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

    async def call() -> None:
        for number in range(400):
            await caller.publish(request(caller, f"c{number}", instance="clustered"))

    async with asyncio.TaskGroup() as group:
        answering = group.create_task(answer())
        group.create_task(call())
        await until(lambda: len(heard) >= 100)
        info = await caller._connection.api(f"STREAM.INFO.{caller.subjects.stream(0)}", None, dict[str, Any])
        await cluster.kill(int(info["cluster"]["leader"].removeprefix("s")))
        async with asyncio.timeout(45):
            while len(heard) < 400:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        answering.cancel()
    assert sorted(recorded.event.rolloutid for recorded in heard) == sorted(f"c{number}" for number in range(400))
    assert [recorded.seq for recorded in heard] == sorted(recorded.seq for recorded in heard)
    await caller.close(0.1)
    await callee.close(0.1)
