"""What the engines of tests that speak HTTP on a real socket have in common."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager


@asynccontextmanager
async def listening(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """Serves connections; gives the base URL of the API."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()


async def respond(writer: asyncio.StreamWriter, document: object, status: str = "200 OK") -> None:
    """Writes the one response of a connection; `status` may have further headers behind it."""
    body = json.dumps(document).encode()
    kind = "Content-Type: application/json\r\nConnection: close"
    writer.write(f"HTTP/1.1 {status}\r\n{kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()
