"""Connecting: who cannot, or is not let in, hears why, and what to do."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from bus import Bus, LogConfig, Unreachable
from bus.errors import ServerUnfit
from bus.server import find_binary
from tests.bus.conftest import Open
from tests.bus.events import free_port, request, until
from tests.bus.own_server import OwnServer


async def test_a_dead_server_is_one_clear_error_without_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bus.connection._CONNECT_S", 0.5)
    with pytest.raises(Unreachable) as caught:
        await Bus.connect(f"nats://user:secret@127.0.0.1:{free_port()}", LogConfig(), name="test/none/w", writer="w")
    assert "no NATS server answers at nats://127.0.0.1" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.fixture
def locked(tmp_path: Path) -> Path:
    """A nats-server that lets in one user alone."""
    binary = tmp_path / "locked"
    authorize = 'if [ "$1" = -c ]; then echo "authorization { user: me, password: pass }" >> "$2"; fi\n'
    binary.write_text(f'#!/bin/sh\n{authorize}exec {find_binary(None)} "$@"\n')
    binary.chmod(0o755)
    return binary


async def test_who_is_not_let_in_hears_what_to_do(
    own: OwnServer, locked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, however often it was tried."""
    monkeypatch.setattr("bus.connection._CONNECT_S", 1.0)
    await own.start(binary=locked)
    with capture_logs() as logs, pytest.raises(Unreachable, match=r"Authorization Violation.*give that user"):
        await Bus.connect(own.url, LogConfig(), name="test/none/w", writer="w")
    assert logs == []
    assert own.running.log_file.read_text().count("authentication error") > 1


async def test_who_is_not_let_in_any_more_hears_it_once_an_outage(own: OwnServer, locked: Path, open_bus: Open) -> None:
    """With the next step, and it goes on when it is let in again."""
    await own.start()
    bus = await open_bus(own.url)
    for outage in (1, 2):
        with capture_logs() as logs:
            await own.stop()
            await own.start(binary=locked)
            await until(lambda: own.running.log_file.read_text().count("authentication error") > 3 * outage)  # noqa: B023
            await own.stop()
            await own.start()
            assert await bus.publish(request(bus, f"r{outage}")) == outage
        (told,) = [line for line in logs if line["event"] == "not_let_in"]
        assert told["hint"].startswith("trying again; its config says whom it lets in: give that user")


async def test_something_else_that_listens_is_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bus.connection._CONNECT_S", 0.5)

    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail ready\r\n")
        await writer.drain()
        writer.close()

    other = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with other:
        port = other.sockets[0].getsockname()[1]
        with pytest.raises(Unreachable):
            await Bus.connect(f"nats://127.0.0.1:{port}", LogConfig(), name="test/none/w", writer="w")


async def test_a_server_without_jetstream_is_told_so(tmp_path: Path) -> None:
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        find_binary(None), "-a", "127.0.0.1", "-p", str(port), stderr=asyncio.subprocess.DEVNULL, cwd=tmp_path
    )
    try:
        with pytest.raises(ServerUnfit, match="-js"):
            await Bus.connect(f"nats://127.0.0.1:{port}", LogConfig(), name="test/none/w", writer="w")
    finally:
        process.terminate()
        await process.wait()
