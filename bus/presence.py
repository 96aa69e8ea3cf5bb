"""Is a worker there that reads a consumer, though it asks for nothing?

One whose places are all taken pulls nothing, and what a dead one held counts as held until somebody pulls. So each
puller listens on a subject of its consumer, outside of the log, for as long as it is connected; where nobody listens
the server says so at once. Called by `pull` and `overview`.
"""

from typing import Final

from bus.connection import NO_RESPONDERS, Connection
from bus.errors import Unreachable

_ANSWER_S: Final = 1.0


async def be_present(connection: Connection, stream: str, consumer: str) -> None:
    """Answers those who ask, until the connection is closed: who drains still holds something."""

    def answer(_subject: bytes, reply: bytes, _data: bytes, _headers: bytes | None) -> None:
        if reply and connection.up:
            connection.send(reply, b"", b"")

    await connection.subscribe(_subject(stream, consumer), answer)


async def is_anyone_present(connection: Connection, stream: str, consumer: str) -> bool:
    """Whether somebody is connected who reads it. Who is too busy to answer in time is there as well."""
    try:
        answer = await connection.ask_once(_subject(stream, consumer), b"", _ANSWER_S)
    except Unreachable:
        return True
    return answer.status != NO_RESPONDERS


def _subject(stream: str, consumer: str) -> str:
    return f"_PRESENT.{stream}.{consumer}"
