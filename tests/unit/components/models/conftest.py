"""A real HTTP server on loopback that fails in every way an engine fails."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest

Behaviour = Callable[[asyncio.StreamWriter], Awaitable[None]]


def answer(status: int, body: str = "{}", **headers: str) -> Behaviour:
    """A whole answer."""

    async def behave(writer: asyncio.StreamWriter) -> None:
        given = {"Content_Type": "application/json", "Content_Length": str(len(body.encode())), **headers}
        head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in given.items())
        writer.write(f"HTTP/1.1 {status} X\r\n{head}\r\n{body}".encode())
        await writer.drain()

    return behave


async def hang(_writer: asyncio.StreamWriter) -> None:
    """Takes the request and never answers."""
    await asyncio.Event().wait()


async def slow_headers(writer: asyncio.StreamWriter) -> None:
    """Begins its answer and never gets to the end of the headers."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
    await writer.drain()
    await asyncio.Event().wait()


async def half_body(writer: asyncio.StreamWriter) -> None:
    """Dies in the middle of the body."""
    writer.write(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"half":')
    await writer.drain()
    writer.close()


async def disconnect(writer: asyncio.StreamWriter) -> None:
    """Closes the connection without a word."""
    writer.close()


@dataclass
class Engine:
    """Behaves as scripted, one behaviour a request, the last one for ever."""

    script: list[Behaviour]
    url: str = ""
    requests: list[str] = field(default_factory=list)
    """Request lines and headers, in order of arrival."""
    bodies: list[bytes] = field(default_factory=list)
    at_once: int = 0
    """Requests being answered now."""
    most_at_once: int = 0
    _handlers: set["asyncio.Task[None]"] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        try:
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next((int(line[15:]) for line in head.lower().split("\r\n") if "content-length:" in line), 0)
                self.bodies.append(await reader.readexactly(length))
                self.requests.append(head)
                behave = self.script[min(len(self.requests), len(self.script)) - 1]
                self.at_once += 1
                self.most_at_once = max(self.most_at_once, self.at_once)
                try:
                    await behave(writer)
                finally:
                    self.at_once -= 1
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._handlers.discard(task)
            writer.close()

    async def stop(self) -> None:
        for task in list(self._handlers):
            task.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)


StartEngine = Callable[..., Awaitable[Engine]]


@pytest.fixture
async def start_engine() -> AsyncIterator[StartEngine]:
    """Starts engines that behave as told; they stop with the test."""
    running: list[tuple[asyncio.Server, Engine]] = []

    async def start(*script: Behaviour) -> Engine:
        engine = Engine(list(script))
        server = await asyncio.start_server(engine.serve, "127.0.0.1", 0, backlog=4096)
        engine.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        running.append((server, engine))
        return engine

    yield start
    for server, engine in running:
        server.close()
        await engine.stop()
        await server.wait_closed()


@pytest.fixture
def dead_url() -> str:
    """A base URL at which nothing listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{found.getsockname()[1]}/v1"
