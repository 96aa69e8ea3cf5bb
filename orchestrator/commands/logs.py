"""What do the commands on a log share?

How the log is named on the command line, the way from there to an open bus, and which run in it is meant. Called by
`audit`, `cancel`, `dead`, `log`, `rebuild` and `status`.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from bus import Bus
from bus.connection import redacted
from bus.opening import LogPlace, log_of, open_log
from bus.run_folder import RESULTS, run_id
from orchestrator.commands.failures import errors
from orchestrator.errors import UsageError, nearest

Where = Annotated[
    Path | None,
    typer.Argument(
        metavar="RUN",
        help="Directory of a run, or of `jetgym up`; or a run's ID, where its directory is in results/.",
        show_default=False,
    ),
]
Url = Annotated[
    str | None,
    typer.Option("--url", metavar="nats://HOST:PORT", help="Server that has the log.", show_default=False),
]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", help="Namespace of the deployment, where the server has several.", show_default=False),
]
SOON_S: Final = 3.0
"""Seconds after which a person hears that a log does not answer yet."""
PATIENCE_S: Final = 25.0
"""Seconds that the bus asks for an answer, at most."""
Json = Annotated[bool, typer.Option("--json", help="Print one line of JSON and nothing else.")]


def folder_of(where: Path | None) -> Path | None:
    """The directory that is meant; raises `UsageError` where there is none."""
    if where is None or where.is_dir():
        return where
    if (RESULTS / where).is_dir():
        return RESULTS / where
    raise UsageError(f"there is no directory {where}, nor {RESULTS / where}: name a run, or its log with --url")


def place_of(folder: Path | None, url: str | None) -> LogPlace:
    """Where the log is; raises `UsageError` where it is not said, `NoLog` where it is not there."""
    if url is not None:
        return LogPlace(url)
    if folder is None:
        raise UsageError("name the directory of a run, or the server that has its log with --url")
    return log_of(folder)


def words_for(folder: Path | None, url: str | None, namespace: str | None) -> list[str]:
    """The words that name a log to another command, as it was named to this one."""
    words = [] if folder is None else [str(folder)]
    words += [] if url is None else ["--url", redacted(url)]
    return words + ([] if namespace is None else ["--namespace", namespace])


@asynccontextmanager
async def opened(folder: Path | None, url: str | None, namespace: str | None) -> AsyncIterator[Bus]:
    """The log of a directory, or at a URL; raises as `place_of` and `open_place`."""
    async with open_place(place_of(folder, url), namespace, folder) as bus:
        yield bus


@contextmanager
def _impatient(where: str | Path) -> Iterator[None]:
    """Tells a person what is waited for, where a server does not answer soon."""
    told = (
        f"the log at {redacted(where) if isinstance(where, str) else where} does not answer yet: trying for up to "
        f"{PATIENCE_S:g} s"
    )
    telling = asyncio.get_running_loop().call_later(SOON_S, partial(errors.print, told, markup=False, soft_wrap=True))
    try:
        yield
    finally:
        telling.cancel()


@asynccontextmanager
async def open_place(place: LogPlace, namespace: str | None, folder: Path | None) -> AsyncIterator[Bus]:
    """The log there; raises as `open_log`, and `UsageError` where it does not hold the run of the directory."""
    async with AsyncExitStack() as stack:
        with _impatient(place.where):
            opening = open_log(place.where, namespace or place.namespace, name="orchestrator")
            bus = await stack.enter_async_context(opening)
        run = run_id(folder) if place.recorded and folder is not None else None
        if run is not None and run not in await runs_of(bus):
            raise UsageError(
                f"{folder} ran on the log at {place.where}, and the one that is there now does not hold {run}: "
                f"name the log with --url"
            )
        yield bus


async def one_run(bus: Bus, asked: str | None, folder: Path | None) -> str:
    """The run that is meant: the one asked for, that of the directory, or the only one; raises `UsageError`."""
    if asked is not None:
        return asked
    if folder is not None and (found := run_id(folder)) is not None:
        return found
    runs = await runs_of(bus)
    if len(runs) != 1:
        told = f"name one with --run: {', '.join(runs)}" if runs else "nothing ran on it"
        raise UsageError(f"the log holds {len(runs)} runs, {told}")
    return runs[0]


async def runs_of(bus: Bus) -> list[str]:
    """The runs that began on this log, in their order: collected ones say so, a trainer's has a feed."""
    collected, trained = bus.subjects.deployment("run", "*"), bus.subjects.feed("*", "*", 0)
    runs: dict[str, None] = {}
    async for recorded in bus.scan(collected, trained):
        parts = recorded.subject.split(".")
        runs[parts[3] if parts[2] == "feed" else parts[-1]] = None
    return list(runs)


async def unknown_run(bus: Bus, run: str) -> UsageError:
    """The error for a run of which the log has nothing."""
    return UsageError(f"the log has no run {run!r}; {nearest(run, await runs_of(bus))}")


def working(text: str) -> AbstractContextManager[object]:
    """Tells what is going on, to a person only."""
    return errors.status(text) if errors.is_terminal else nullcontext()
