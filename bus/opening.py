"""How does a command get at a log: where a server serves it, or at rest in a run's directory?

Called by the commands that read or tend a log. The log of a run on a deployment elsewhere is where its config says. A
log at rest is served for as long as the command takes. What the log is like, its streams say. Nothing is ever created
here: a log that is not there is an error.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from bus.bus import Bus
from bus.connection import Connection, connect
from bus.errors import NoLog
from bus.run_folder import CONFIG, LOG, live
from bus.server import EmbeddedServer
from bus.topology import PARTITIONS, LogConfig, stream_info
from contracts.deployments import REDACTED

_FIRST: Final = "_0"
_BLOBS: Final = "_blobs"


class _Streams(msgspec.Struct):
    total: int = 0
    streams: list[str] | None = None


class LogPlace(NamedTuple):
    """Where a log is."""

    where: str | Path
    """A URL, or a store at rest."""
    namespace: str | None = None
    """None where it is not known."""
    recorded: bool = False
    """The URL is that of a run that may have ended long ago: another log may be there by now."""


def log_of(folder: Path) -> LogPlace:
    """Where the log of a run or of a deployment is: live, at rest in its directory, or elsewhere as its config says.

    Raises `NoLog`.
    """
    facts = live(folder)
    if facts:
        return LogPlace(str(facts["url"]), facts.get("namespace"))
    at_rest = (folder / LOG).is_dir()
    if not at_rest and (url := url_of(folder)) is not None:
        if REDACTED in url:
            raise NoLog(f"{folder} ran at {url}, and the secret of the URL is not kept: name it whole with --url")
        return LogPlace(url, recorded(folder, "log").get("namespace"), recorded=True)
    if facts is not None:
        raise NoLog(f"{folder} is used by a jetgym whose server cannot be reached yet")
    if not at_rest:
        raise NoLog(f"{folder} has no {LOG}/: name the server that has its log with --url")
    return LogPlace(folder / LOG)


def url_of(folder: Path) -> str | None:
    """The URL of the server that has the log of a directory, live or as recorded; None where it was its own.

    Raises `NoLog`.
    """
    found: str | None = (live(folder) or {}).get("url") or recorded(folder, "server").get("url")
    return found


def recorded(folder: Path, section: str) -> dict[str, Any]:
    """A section of the resolved config of a directory; empty where it has none. Raises `NoLog`."""
    path = folder / CONFIG
    try:
        config = yaml.safe_load(path.read_text()) if path.is_file() else {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise NoLog(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    found = config.get(section) if isinstance(config, dict) else None
    return found if isinstance(found, dict) else {}


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
