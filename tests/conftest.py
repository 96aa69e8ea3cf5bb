"""Options and fixtures that several suites share: a real nats-server, our own or the official image's."""

import asyncio
import gc
import itertools
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from bus import EmbeddedServer, LogConfig

settings.register_profile("suite", deadline=None)  # a busy machine is no failure
settings.load_profile("suite")

IMAGE = "nats:2.11-alpine"
_numbers = itertools.count()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--nats",
        choices=["auto", "embedded", "docker"],
        default="auto",
        help="nats-server of the bus suite; auto: the embedded one, and the image if a Docker engine answers",
    )


def docker_problem() -> str:
    """Why the official image cannot be run here; empty if it can."""
    import docker  # type: ignore[import-untyped]  # noqa: PLC0415 - slow to import, and only this needs it

    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        try:
            client = docker.from_env(timeout=5)
            client.ping()
            client.close()
        except docker.errors.DockerException as error:
            return f"no Docker engine answers, so nothing ran on the image {IMAGE}: {error}"
        finally:
            gc.collect()  # a failing docker.from_env leaves its socket open
    return ""


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of an embedded nats-server. It is shared: each test takes its own `config`."""
    directory = tmp_path_factory.mktemp("nats")
    running = asyncio.run(EmbeddedServer.start(directory, LogConfig()))
    yield running.url
    asyncio.run(running.stop())


@pytest.fixture(scope="session")
def docker_server() -> Iterator[str]:
    """URL of a nats-server in the official image; skips where no Docker engine answers."""
    if problem := docker_problem():
        pytest.skip(problem)
    from testcontainers.core.container import DockerContainer  # noqa: PLC0415
    from testcontainers.core.waiting_utils import wait_for_logs  # noqa: PLC0415

    container = DockerContainer(IMAGE).with_command("-js").with_exposed_ports(4222)
    with container as running:
        wait_for_logs(running, "Server is ready", timeout=60)
        yield f"nats://{running.get_container_host_ip()}:{running.get_exposed_port(4222)}"


@pytest.fixture
def config() -> LogConfig:
    """The configuration of a log that no other test uses."""
    return LogConfig(namespace=f"t{next(_numbers)}")


@pytest.fixture
def new_directory(tmp_path: Path) -> Callable[[], Path]:
    """Fresh directories for servers that a test starts itself."""
    return lambda: tmp_path / f"server{next(_numbers)}"
