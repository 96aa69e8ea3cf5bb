"""Opens what the user named: a run's directory, a log at a URL, or files of exported events.

Called by every command. Where a run's server is not running, the run's store is served for as long as the command
takes.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from bus import BusError, EmbeddedServer, LogConfig
from bus.opening import url_of
from bus.run_folder import RESULTS
from contracts.deployments import REDACTED
from replay.errors import NoSource, UnknownName
from replay.facts import facts_of
from replay.file_source import FileSource
from replay.log_source import open_log
from replay.names import LAST, find_run, one_of
from replay.places import Place, deployment_before, find_place, live_url, log_of, place, places
from replay.source import Source


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

    @property
    def folder(self) -> Path | None:
        """The run's directory, where it is named by that."""
        return Path(self.run) if self.run is not None and place(Path(self.run)) is not None else None


def url_options(url: str, namespace: str) -> str:
    """How a command is told of a log at a URL."""
    return f"--url {url}" + ("" if namespace == LogConfig().namespace else f" --namespace {namespace}")


@asynccontextmanager
async def open_source(where: Where, rollout: str | None = None) -> AsyncIterator[Source]:
    """The source; `rollout` is what the user calls a rollout in it. Raises `ReplayError` or `BusError`."""
    if where.files:
        yield FileSource(where.files)
    elif where.url is not None:
        async with open_log(where.url, LogConfig(namespace=where.namespace), where.url) as source:
            yield source
    else:
        run = choose(where, rollout)
        async with AsyncExitStack() as stack:
            try:
                found = await stack.enter_async_context(_open_place(run))
            except NoSource as error:
                if where.run is not None or rollout is None or rollout == LAST or rollout.startswith(run.run_id):
                    raise
                raise UnknownName(f"no run here begins like {rollout!r}; the newest one: {error}") from error
            yield found


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


async def run_in(source: Source, where: Where, rollout: str | None = None) -> str | None:
    """The ID of the run that is meant in an open source; None for all that it holds. Raises `ReplayError`."""
    if where.is_local:
        return choose(where, rollout).only
    return await find_run(source, where.run) if where.run is not None else None


@asynccontextmanager
async def _open_elsewhere(run: Place) -> AsyncIterator[Source]:
    """The log of a deployment elsewhere that the run used, at the URL that the run has recorded."""
    log, url = log_of(run), url_of(run.path)
    ways = (
        f"Name the log with {url_options('nats://HOST:PORT', log.namespace)}, or, where it is on this machine, with "
        f"--run and the directory of `jetgym up` (results/d…)"
    )
    told = f"{run.path} keeps no log, it ran on a deployment elsewhere"
    if url is None:
        raise NoSource(f"{told}. {ways}")
    if REDACTED in url:
        raise NoSource(f"{told}, {url}, and the secret of the URL is not kept. {ways}")
    async with AsyncExitStack() as stack:
        try:
            source = await stack.enter_async_context(open_log(url, log, str(run.path)))
        except BusError as error:
            end = "" if str(error).endswith("?") else "."
            raise NoSource(f"{told}: {error}{end} {ways}") from error
        if run.only is not None and run.only not in (await facts_of(source)).asked:
            raise NoSource(f"{told}, and the log that is at {url} now does not hold it. {ways}")
        yield source


@asynccontextmanager
async def _open_place(run: Place) -> AsyncIterator[Source]:
    """The run's own log, live or at rest, or that of the deployment that it used."""
    if run.store is None:
        async with AsyncExitStack() as stack:
            try:
                source = await stack.enter_async_context(_open_elsewhere(run))
            except NoSource:
                if (used := deployment_before(run)) is None:
                    raise
                source = await stack.enter_async_context(_open_place(used))
                if run.only not in (await facts_of(source)).asked:
                    raise
            yield source
        return
    log = log_of(run)
    if (url := live_url(run)) is not None:
        async with open_log(url, log, str(run.path)) as source:
            yield source
        return
    server = await EmbeddedServer.start(run.store, log)
    try:
        async with open_log(server.url, log, str(run.path)) as source:
            yield source
    finally:
        await server.stop()
