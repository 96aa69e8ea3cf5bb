"""`jetgym status`: what a deployment is doing right now."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from bus.run_folder import LOG, RESULTS, live
from orchestrator.commands.common import console, run_async
from orchestrator.commands.logs import Json, Namespace, Url, Where, folder_of, open_place, place_of, working
from orchestrator.errors import UsageError
from orchestrator.feed_records import FeedState
from orchestrator.grid import grid
from orchestrator.hints import amount, counted, span
from orchestrator.status import Observer, PoolStatus, Status

NEARLY_FULL = 0.9


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("status")(status)


def status(
    where: Where = None,
    url: Url = None,
    namespace: Namespace = None,
    watch: Annotated[bool, typer.Option("--watch", help="Look again and again, until Ctrl-C.")] = False,
    as_json: Json = False,
) -> None:
    """Shows rollouts, queues, workers, dead letters and the log of a deployment.

    Without arguments, of what is live below results/. Rates are from two looks
    a second apart. The log of a directory in which nothing is live is served
    for as long as the command takes.

    \b
    jetgym status
    jetgym status results/first --watch
    jetgym status --url nats://127.0.0.1:4222 --json
    """  # noqa: D301 - the help keeps these lines as they are
    folders: list[Path | None] = [folder_of(where)]
    if where is None and url is None:
        folders = [folder for folder in sorted(RESULTS.glob("*/")) if live(folder)]
        if not folders:
            raise UsageError(
                f"nothing is live in {RESULTS}/; name the directory of a run that is at rest, or a deployment "
                f"elsewhere with --url nats://…"
            )
    try:
        run_async(_status(folders, url, namespace, watch=watch, as_json=as_json))
    except KeyboardInterrupt:
        if not watch:
            raise


async def _status(
    folders: list[Path | None], url: str | None, namespace: str | None, *, watch: bool, as_json: bool
) -> None:
    async with AsyncExitStack() as stack:
        with working("looking"):
            observers = [await stack.enter_async_context(_observer(folder, url, namespace)) for folder in folders]
            await asyncio.gather(*(observer.look() for observer in observers))
            await observers[0].pause()
            found = await asyncio.gather(*(observer.look() for observer in observers))
        if as_json or not watch:
            _tell(found, as_json=as_json)
        if not watch:
            return
        screen = None if as_json else stack.enter_context(Live(_drawn(found), console=console, auto_refresh=False))
        while True:
            await observers[0].pause()
            found = await asyncio.gather(*(observer.look() for observer in observers))
            if screen is None:
                _tell(found, as_json=True)
            else:
                screen.update(_drawn(found), refresh=True)


@asynccontextmanager
async def _observer(folder: Path | None, url: str | None, namespace: str | None) -> AsyncIterator[Observer]:
    facts = live(folder) if folder is not None and url is None else None
    store = folder / LOG if folder is not None and url is None else None
    place = place_of(folder, url)
    at_rest = isinstance(place.where, Path)
    async with open_place(place, namespace, folder) as bus:
        name = str(folder) if url is None else url
        workers = [] if at_rest else facts.get("workers", {}) if facts else None
        yield Observer(
            bus,
            f"{name}, at rest" if at_rest else name,
            workers=workers,
            store=store if store is not None and store.is_dir() else None,
            at_rest=at_rest,
        )


def _tell(found: list[Status], *, as_json: bool) -> None:
    if not as_json:
        console.print(_drawn(found), crop=False)
        return
    for each in found:
        typer.echo(msgspec.json.encode(each).decode())


def _drawn(found: list[Status]) -> Group:
    return Group(*(part for each in found for part in _parts(each)))


def _parts(found: Status) -> list[Text]:
    lines = [
        Text(f"{found.where}, namespace {found.namespace}", style="bold"),
        Text(
            f"rollouts: {found.requested:,} requested, {found.ended:,} ended, {found.in_flight:,} in flight"
            f"{_per_second(found.ended_per_s, ', {} ended')}"
        ),
        Text(f"log: {_log(found)}", style="red" if (found.log_used or 0) > NEARLY_FULL else ""),
    ]
    if found.dead_letters:
        told = f"{counted(found.dead_letters, 'dead letter')}: `jetgym dead list` shows why"
        lines.append(Text(told, style="red"))
    lines += [Text(f"policy of {name}: version {version}") for name, version in found.policies.items()]
    lines += [Text(_feed(feed)) for feed in found.feeds]
    return [*lines, Text(), _table(found)] if found.pools else lines


def _feed(feed: FeedState) -> str:
    told = f"feed {feed.feed} of run {feed.run}: {counted(feed.rollouts, 'rollout')} taken up to version {feed.version}"
    lags = ", ".join(f"{count:,} at {lag}" for lag, count in feed.staleness.items())
    told += f", staleness {lags}" if lags else ""
    refused = ", ".join(f"{count:,} {reason}" for reason, count in feed.refused.items())
    told += f", dropped {refused}" if refused else ""
    return f"{told}; then {counted(feed.unfinished, 'group')} unfinished, {feed.waiting:,} waiting"


def _log(found: Status) -> str:
    blobs = f" and {amount(found.blob_bytes)} of blobs" if found.blob_bytes else ""
    told = f"{counted(found.events, 'event')}, {amount(found.log_bytes)}{blobs}"
    if found.log_limit is not None and found.log_used is not None:
        told += f"; {100 * found.log_used:.0f}% of {amount(found.log_limit)} (log.max_bytes)"
    else:
        told += "; no bound of its own (log.max_bytes)"
    if found.free_bytes is not None:
        told += f", {amount(found.free_bytes)} free on its disk"
    return told + _per_second(found.events_per_s, "; {} events")


def _table(found: Status) -> Text:
    headings = ("pool", "pending", "in\nprogress", "delivered\nagain", "oldest", "done/s", "workers")
    return grid(headings, [_row(pool) for pool in found.pools], console.width)


def _row(pool: PoolStatus) -> list[str | Text]:
    workers = str(pool.workers) if pool.workers else "elsewhere" if pool.served else "none"
    return [
        Text.assemble(f"{pool.pool}\n", (pool.kind, "dim")),
        f"{pool.pending:,}",
        f"{pool.in_progress:,}",
        f"{pool.redelivered:,}",
        "-" if pool.oldest_s is None else span(pool.oldest_s),
        "-" if pool.per_s is None else f"{pool.per_s:,.1f}",
        Text(workers, style="red" if workers == "none" and pool.pending else ""),
    ]


def _per_second(rate: float | None, form: str) -> str:
    return "" if not rate else form.format(f"{rate:,.1f}/s")
