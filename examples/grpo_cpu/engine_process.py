"""How does the trainer have an engine beside it? It starts the server as a process, and tells it of new weights.

Used by `learn.py`. What the server is told otherwise comes from JetGym's model workers, to whom it is any engine.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

import aiohttp

from examples.grpo_cpu.serving import Load

START_S: Final = 180.0
"""Seconds that the server may take until it listens."""
ANSWER_S: Final = 60.0
"""Seconds that it may take to change its weights; it does so between two tokens."""
STOP_S: Final = 10.0


class EngineProcess:
    """The server in its process. Made by `start`."""

    def __init__(self, port: int, session: aiohttp.ClientSession) -> None:
        self._url, self._session = f"http://127.0.0.1:{port}", session

    @property
    def base_url(self) -> str:
        """For a model's config."""
        return f"{self._url}/v1"

    @classmethod
    @asynccontextmanager
    async def start(cls, weights: Path, version: int, tokenizer: Path, *, seed: int) -> AsyncIterator[Self]:
        """The server with these weights; it ends with the context, and with this process. Raises `RuntimeError`."""
        options = {"weights": weights, "version": version, "tokenizer": tokenizer, "seed": seed}
        arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "examples.grpo_cpu.server", *arguments, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        try:
            try:
                async with asyncio.timeout(START_S):
                    line = await process.stdout.readline()
            except TimeoutError:
                raise RuntimeError(
                    f"the engine's server did not listen within {START_S:g} s: is the machine busy?"
                ) from None
            if not line:
                raise RuntimeError("the engine's server did not start; what it said is above")
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_S)) as session:
                yield cls(int(line), session)
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            try:
                async with asyncio.timeout(STOP_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()

    async def swap(self, weights: Path, version: int) -> None:
        """Returns when the engine generates with these weights; what it is generating goes on under them."""
        body = {"path": str(weights), "version": version}
        async with self._session.post(f"{self._url}/weights", json=body) as answer:
            if answer.status != 200:  # noqa: PLR2004
                raise RuntimeError(f"the engine did not take version {version}: {await answer.text()}")

    async def load(self) -> Load:
        """What it is doing."""
        async with self._session.get(f"{self._url}/load") as answer:
            body: dict[str, Any] = await answer.json()
        return Load(**body)
