"""The web app over a recording in a file, asked as a browser asks it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Application, Request

from contracts.events import Recorded
from replay.file_source import export_lines
from replay.opening import Where
from replay.ui.guard import Guard
from replay.ui.library import Library
from replay.ui.server import build


class Pages:
    """A running app."""

    def __init__(self, client: TestClient[Request, Application], guard: Guard) -> None:
        self.client, self.guard = client, guard

    async def get(self, path: str, status: int = 200, **query: str) -> Any:
        """The JSON under a path of the API."""
        async with self.client.get(f"/api/{path}", params=query or None) as response:
            assert response.status == status, await response.text()
            return await response.json()


@asynccontextmanager
async def serving(folder: Path, events: list[Recorded]) -> AsyncIterator[Pages]:
    """The app over these events, after they have been read."""
    file = folder / "events.jsonl"
    file.write_bytes(b"".join(line + b"\n" for line in export_lines(events, {})))
    library, guard = Library(Where(files=(file,))), Guard()
    async with TestClient(TestServer(build(library, guard), host="127.0.0.1")) as client:
        pages = Pages(client, guard)
        await read(library)
        yield pages


async def read(library: Library) -> None:
    """Waits until the source has been read."""
    shelf = (await library.open("r1")).shelf
    async with asyncio.timeout(20):
        while shelf.state == "loading":
            await shelf.changed(shelf.version)
