"""A nats-server of one test's own, which it may kill, have stand still, and start again."""

import os
import signal
from contextlib import suppress
from pathlib import Path

from bus import EmbeddedServer, LogConfig
from tests.bus.events import until


class OwnServer:
    """On one port, and on the store in `directory`, however often it is started."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._settings = LogConfig()
        self._server: EmbeddedServer | None = None

    @property
    def running(self) -> EmbeddedServer:
        """As it was started last."""
        assert self._server is not None
        return self._server

    @property
    def url(self) -> str:
        return self.running.url

    async def start(
        self, settings: LogConfig | None = None, *, binary: Path | None = None, elsewhere: Path | None = None
    ) -> None:
        """Starts it, with the settings of the start before where there are none; `elsewhere` is another store."""
        port = None if self._server is None else self._server.port
        self._settings = settings or self._settings
        directory = elsewhere or self.directory
        self._server = await EmbeddedServer.start(directory, self._settings, port=port, binary=binary)

    async def kill(self) -> None:
        """SIGKILL, and the end of the process."""
        os.kill(self.running.pid, signal.SIGKILL)
        await self.stop()

    async def stop(self) -> None:
        """The polite end."""
        await self.running.stop()

    async def stand_still(self) -> None:
        """SIGSTOP, and it stands still."""
        process = self.running.pid
        os.kill(process, signal.SIGSTOP)

        def stands() -> bool:
            return all(" T " in thread.read_text() for thread in Path(f"/proc/{process}/task").glob("*/stat"))

        await until(stands)

    def go_on(self) -> None:
        """SIGCONT."""
        os.kill(self.running.pid, signal.SIGCONT)

    async def end(self) -> None:
        """Whatever the test left it like."""
        if self._server is not None:
            with suppress(ProcessLookupError):
                self.go_on()
            await self.stop()
