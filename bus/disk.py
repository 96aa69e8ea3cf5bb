"""Could a server not write to its disk, and is there room on it again?

A nats-server keeps the first error of writing to a stream, as of a disk that is full. From then on it answers no
publish to that stream, though there is room again, until it is started anew; only its health tells. Called by `server`
for one of its own. It starts and ends nothing.
"""

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

_ASK_S: Final = 5.0
_TOLD: Final = " write error: "
_ROOM_BYTES: Final = 4 * 1024 * 1024
_LOOK_AGAIN_S: Final = 1.0


class _Health(msgspec.Struct):
    error: str = ""


async def write_error(port: int) -> str | None:
    """What kept the server from writing, by the health that it tells on this port; None where nothing is known."""
    with suppress(OSError, TimeoutError, msgspec.DecodeError, ValueError):
        async with asyncio.timeout(_ASK_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
                answer = await reader.read()
            finally:
                writer.close()
        said = msgspec.json.decode(answer.partition(b"\r\n\r\n")[2], type=_Health).error
        if _TOLD in said:
            return said.partition(_TOLD)[2]
    return None


async def no_room(directory: Path) -> str | None:
    """Why some mebibytes cannot be written there; None where they can."""
    return await asyncio.to_thread(_no_room, directory / "room")


async def until_room(directory: Path) -> None:
    """Returns when there is room."""
    while await no_room(directory) is not None:  # noqa: ASYNC110 - no disk sets an event
        await asyncio.sleep(_LOOK_AGAIN_S)


def _no_room(file: Path) -> str | None:
    try:
        with file.open("wb") as probe:
            probe.write(bytes(_ROOM_BYTES))
            os.fsync(probe.fileno())
    except OSError as error:
        return error.strerror or str(error)
    finally:
        file.unlink(missing_ok=True)
    return None
