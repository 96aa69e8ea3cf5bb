"""The bus suite runs on each nats-server that is there: `url` is parametrized over them."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cache
from pathlib import Path

import pytest
import uvloop

from bus import Bus, LogConfig
from tests.bus.own_server import OwnServer
from tests.bus.proxy import Proxy
from tests.conftest import docker_problem

Open = Callable[[str], Awaitable[Bus]]
_docker_problem = cache(docker_problem)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine" in metafunc.fixturenames:
        asked = metafunc.config.getoption("--nats")
        both = asked == "auto" and not _docker_problem()
        metafunc.parametrize("engine", ["embedded", "docker"] if both else [asked.replace("auto", "embedded")])


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that workers run on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def url(engine: str, request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("server" if engine == "embedded" else "docker_server"))


@pytest.fixture
async def open_bus(config: LogConfig) -> AsyncIterator[Open]:
    """Connects; each call is another process's bus. All are closed at the end."""
    opened: list[Bus] = []
    numbers = itertools.count(1)

    async def connect(url: str) -> Bus:
        writer = f"w{next(numbers)}"
        bus = await Bus.connect(url, config, name=f"test/bus/{writer}", writer=writer)
        opened.append(bus)
        await bus.ensure_log()
        return bus

    yield connect
    for bus in opened:
        await bus.close(timeout_s=0.2)


@pytest.fixture
async def bus(url: str, open_bus: Open) -> Bus:
    return await open_bus(url)


@pytest.fixture
async def own(new_directory: Callable[[], Path]) -> AsyncIterator[OwnServer]:
    """A server that the test starts, and ends as it likes."""
    own = OwnServer(new_directory())
    yield own
    await own.end()


@pytest.fixture
async def proxy(server: str) -> AsyncIterator[Proxy]:
    """A way to the embedded server that can lose what the server says, and be cut."""
    proxy = await Proxy.start(int(server.rpartition(":")[2]))
    yield proxy
    await proxy.close()
