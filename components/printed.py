"""What does a process print that this one started?

Called by whoever has to go on reading it, so that it never waits for a reader: asyncio's own reading of lines ends at
one that is longer than 64 kB. What workers print is read by their supervisor, which keeps secrets out of it.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

PIECE: Final = 65_536
"""Bytes; a line that is longer comes in pieces that are about as long."""


async def printed(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """Each line until there is no more, without the white space at its end."""
    rest = b""
    while chunk := await stream.read(PIECE):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) >= PIECE:
            lines.append(rest)
            rest = b""
        for line in lines:
            yield line.decode(errors="replace").rstrip()
    if rest:
        yield rest.decode(errors="replace").rstrip()
