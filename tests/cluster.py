"""A cluster of three nats-servers on loopback, for tests and benchmarks of replicated logs."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bus import Bus
from bus.connection import connect
from bus.errors import Unreachable
from bus.server import find_binary

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

    async def leader(self, bus: Bus) -> int:
        """The server that leads the first partition's stream."""
        info = await bus._connection.api(f"STREAM.INFO.{bus.subjects.stream(0)}", None, dict[str, Any])
        return int(info["cluster"]["leader"].removeprefix("s"))

    async def kill(self, number: int) -> None:
        process = self.processes.pop(number)
        process.kill()
        await process.wait()


@asynccontextmanager
async def running_cluster(directory: Path) -> AsyncIterator[Cluster]:
    """The servers, once they have elected a leader; those that still live are killed in the end."""
    cluster = Cluster(directory)
    try:
        for number in range(SERVERS):
            await cluster.start(number)
        async with asyncio.timeout(30):
            while not await _has_leader(cluster.url):  # noqa: ASYNC110 - other processes set no event
                await asyncio.sleep(0.05)
        yield cluster
    finally:
        for number in list(cluster.processes):
            await cluster.kill(number)


async def _has_leader(url: str) -> bool:
    try:
        connection = await connect(url, name="test/ready")
    except Unreachable:
        return False
    try:
        return b'"error"' not in (await connection.request("$JS.API.INFO", b"", 0.5)).data
    except Unreachable:
        return False
    finally:
        await connection.close()
