"""Opens what the user named: a run's directory, a log at a URL, or files of exported events.

Called by every command. Where a run's server is not running, the run's store is served for as long as the command
takes.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from bus import EmbeddedServer, LogConfig
from bus.errors import StoreInUse
from bus.run_folder import RESULTS
from replay.errors import NoSource
from replay.file_source import FileSource
from replay.log_source import open_log
from replay.names import LAST, find_run, one_of
from replay.places import Place, find_place, live_url, log_of, places
from replay.source import Source

_BUSY_S: Final = 10.0
"""Seconds to wait for another command that has the store open."""
_RETRY_S: Final = 0.1


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """What to read, as the command line says it."""

    run: str | None = None
    """A run's ID, a beginning of it, its directory, or `last`. With a URL or files: which run in there."""
    url: str | None = None
    namespace: str = "jetgym"
    files: Sequence[Path] = ()
    results: Path = RESULTS

    @property
    def is_local(self) -> bool:
        """Whether a run's directory on this machine is meant."""
        return self.url is None and not self.files


@asynccontextmanager
async def open_source(where: Where, rollout: str | None = None) -> AsyncIterator[Source]:
    """The source; `rollout` is what the user calls a rollout in it. Raises `ReplayError` or `BusError`."""
    if where.files:
        yield FileSource(where.files)
    elif where.url is not None:
        async with open_log(where.url, LogConfig(namespace=where.namespace), where.url) as source:
            yield source
    else:
        async with _open_place(choose(where, rollout)) as source:
            yield source


def choose(where: Where, rollout: str | None) -> Place:
    """The run's directory that is meant: by the run's name, else by the rollout's ID, else the newest.

    Raises `ReplayError`.
    """
    if where.run is None and rollout is not None and rollout != LAST:
        runs = {run.run_id: run for run in places(where.results)}
        begun = [run_id for run_id in runs if rollout.startswith(f"{run_id}-")]
        if begun:
            return runs[max(begun, key=len)]
        if any(run_id.startswith(rollout) for run_id in runs):
            return runs[one_of(list(runs), rollout, "run")]
    return find_place(where.results, where.run)


async def run_in(source: Source, where: Where) -> str | None:
    """The ID of the run that is meant in an open source; None for all that it holds. Raises `ReplayError`."""
    return await find_run(source, where.run) if where.run is not None and not where.is_local else None


@asynccontextmanager
async def _open_place(run: Place) -> AsyncIterator[Source]:
    log = log_of(run)
    if (url := live_url(run)) is not None:
        async with open_log(url, log, str(run.path)) as source:
            yield source
        return
    if run.store is None:
        raise NoSource(
            f"{run.path} keeps no log: it ran on a deployment elsewhere, name that with --url nats://HOST:PORT"
        )
    server = await _serve(run.store, log)
    try:
        async with open_log(server.url, log, str(run.path)) as source:
            yield source
    finally:
        await server.stop()


async def _serve(store: Path, log: LogConfig) -> EmbeddedServer:
    loop = asyncio.get_running_loop()
    until = loop.time() + _BUSY_S
    while True:
        try:
            return await EmbeddedServer.start(store, log)
        except StoreInUse:
            if loop.time() > until:
                raise
        await asyncio.sleep(_RETRY_S)
