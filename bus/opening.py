"""How does a command get at a log: where a server serves it, or at rest in a run's directory?

Called by the commands that read or tend a log. A log at rest is served for as long as the command takes. What the log
is like, its streams say. Nothing is ever created here: a log that is not there is an error.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from secrets import token_hex
from typing import Final

import msgspec

from bus.bus import Bus
from bus.connection import Connection, connect
from bus.errors import NoLog
from bus.run_folder import LOG, live
from bus.server import EmbeddedServer
from bus.topology import PARTITIONS, LogConfig, stream_info

_FIRST: Final = "_0"
_BLOBS: Final = "_blobs"


class _Streams(msgspec.Struct):
    total: int = 0
    streams: list[str] | None = None


def log_of(folder: Path) -> str | Path:
    """Where the log of a run or of a deployment is: the URL of what is live in its directory, else the store there.

    Raises `NoLog`.
    """
    facts = live(folder)
    if facts:
        return str(facts["url"])
    if facts is not None:
        raise NoLog(
            f"{folder} is used by a jetgym whose server cannot be reached yet, or that uses one elsewhere (--url)"
        )
    if not (folder / LOG).is_dir():
        raise NoLog(f"{folder} has no {LOG}/: name the server that has its log with --url")
    return folder / LOG


@asynccontextmanager
async def open_log(where: str | Path, namespace: str | None, *, name: str) -> AsyncIterator[Bus]:
    """A bus on the log at a URL or in a store.

    Args:
        where: see `log_of`.
        namespace: of the deployment; None where there is only one.
        name: who opens it: begins the source of what is written.

    Raises:
        NoLog: there is none of this namespace, or several and none is named.
        StoreInUse: something else serves this store.
        Unreachable: nothing answers.
    """
    async with AsyncExitStack() as stack:
        if isinstance(where, Path):
            server = await EmbeddedServer.start(where, LogConfig())
            stack.push_async_callback(server.stop)
            where = server.url
        connection = await connect(where, name=name)
        try:
            config = await _config(connection, namespace)
        finally:
            await connection.close()
        writer = f"{name}-{token_hex(4)}"
        yield await stack.enter_async_context(await Bus.connect(where, config, name=f"{name}/{writer}", writer=writer))


async def _config(connection: Connection, namespace: str | None) -> LogConfig:
    streams = await _streams(connection)
    there = sorted(
        stream.removesuffix(_FIRST)
        for stream in streams
        if stream.endswith(_FIRST) and stream.removesuffix(_FIRST) + _BLOBS in streams
    )
    if namespace is None and len(there) == 1:
        namespace = there[0]
    if namespace not in there:
        known = f"there are: {', '.join(there)}" if there else "there is none"
        asked = "name the namespace of one with --namespace" if namespace is None else f"no log is {namespace!r}"
        raise NoLog(f"{asked}; at {connection.url} {known}")
    found = (await stream_info(connection, namespace + _FIRST)).config
    return LogConfig(namespace=namespace, partitions=int((found.get("metadata") or {}).get(PARTITIONS, 1)))


async def _streams(connection: Connection) -> set[str]:
    found: set[str] = set()
    while True:
        page = await connection.api("STREAM.NAMES", {"offset": len(found)}, _Streams)
        found.update(page.streams or ())
        if not page.streams or len(found) >= page.total:
            return found
