"""The engine's process, seen from the worker: started, started again if it dies, stopped.

Used by `local_llm`. The process stops by itself when its standard input closes, so also when the worker is killed.
"""

import asyncio
import json
import sys
from collections import deque
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

import structlog

from components.models.errors import ModelError
from components.printed import printed

START_S: Final = 300.0
"""Longest time to load the weights."""
_STOP_S: Final = 5.0
_RESTART_PAUSE_S: Final = 1.0
_LAST_WORDS: Final = 4
_log = structlog.get_logger()


class EngineProcess:
    """One engine of this worker. `options` are those that `server.py` reads, without port and key."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = {**options, "api_key": token_hex(16), "port": 0}
        self._process: asyncio.subprocess.Process | None = None
        self._last_words: deque[str] = deque(maxlen=_LAST_WORDS)
        self._hearing: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> tuple[str, str]:
        """Starts the engine; returns its base URL, and the key that it asks for. Raises `ModelError`."""
        url, process = await self._launch()
        self._options["port"] = int(url.removesuffix("/v1").rpartition(":")[2])
        self._watch = asyncio.create_task(self._keep_alive(process))
        return url, self._options["api_key"]

    async def stop(self) -> None:
        """Stops the engine."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        if self._process is not None:
            await _end(self._process)
        if self._hearing is not None:
            await self._hearing

    async def _launch(self) -> tuple[str, asyncio.subprocess.Process]:
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            str(Path(__file__).with_name("server.py")),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        self._hearing = asyncio.create_task(self._hear(process))
        try:
            process.stdin.write(json.dumps(self._options).encode() + b"\n")
            async with asyncio.timeout(START_S):
                await process.stdin.drain()
                line = await process.stdout.readline()
        except (TimeoutError, ConnectionError):
            line = b""
        if not line:
            await _end(process)
            await self._hearing
            raise ModelError("unavailable", f"the local engine did not start: {' | '.join(self._last_words)}")
        return str(json.loads(line)["url"]), process

    async def _hear(self, process: asyncio.subprocess.Process) -> None:
        """Passes on what the engine complains of. Ends with the process."""
        assert process.stderr is not None
        async for words in printed(process.stderr):
            self._last_words.append(words.lstrip())
            _log.info("engine.said", words=words.lstrip())

    async def _keep_alive(self, process: asyncio.subprocess.Process) -> None:
        """Starts the engine again, on the same port, whenever it dies; calls meanwhile are tried again by `request`."""
        while True:
            status = await process.wait()
            _log.error("engine.died", status=status)
            await asyncio.sleep(_RESTART_PAUSE_S)
            try:
                _, process = await self._launch()
            except ModelError as error:
                _log.error("engine.not_restarted", reason=error.message)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Lets the process end by itself, and kills it if it does not."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(_STOP_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
