"""`jetgym log`: what takes how much of a log, and how runs leave it."""

import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from bus.room import largest_stream, set_bound
from contracts.spans import read_span
from orchestrator.archive import Archived, archive, new_file
from orchestrator.commands.common import console, run_async
from orchestrator.commands.logs import Json, Namespace, Url, Where, folder_of, one_run, opened, unknown_run, working
from orchestrator.errors import UsageError
from orchestrator.grid import grid
from orchestrator.hints import amount, counted, typed
from orchestrator.prune import Choice, Pruned, choose, is_served, prune
from orchestrator.usage import RunUsage, Usage, usage


def add_to(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(help="What takes how much of a log, and how runs leave it.", no_args_is_help=True)
    group.command("usage", no_args_is_help=True)(show_usage)
    group.command("archive", no_args_is_help=True)(write_archive)
    group.command("prune", no_args_is_help=True)(prune_runs)
    group.command("resize", no_args_is_help=True)(resize_log)
    app.add_typer(group, name="log")


def show_usage(
    where: Where = None,
    largest: Annotated[int, typer.Option("--largest", min=0, help="So many of the largest rollouts.")] = 10,
    url: Url = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Adds up a log: by event type and by run, blobs, the largest rollouts.

    Reads the whole log. Bytes are those of subjects and events, before
    compression. A blob that several refer to is stored once, and counted for
    each of them.

    \b
    jetgym log usage results/first
    jetgym log usage --url nats://127.0.0.1:4222 --json
    """  # noqa: D301 - the help keeps these lines as they are
    found = run_async(_usage(folder_of(where), url, namespace, largest))
    if as_json:
        typer.echo(msgspec.json.encode(found).decode())
    else:
        _show(found)


def write_archive(
    *,
    where: Where = None,
    run: Annotated[
        str | None, typer.Option("--run", help="ID of the run, where the log holds several.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="The file; by default RUN.jsonl, here. Compressed if it ends in .gz."),
    ] = None,
    url: Url = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Writes a run's events into a file that `replay --file` reads.

    The log keeps them: `jetgym log prune` may follow.

    \b
    jetgym log archive results/first --output first.jsonl
    jetgym log archive --url nats://127.0.0.1:4222 --run r1129-1612-x7k2
    """  # noqa: D301 - the help keeps these lines as they are
    file, found = run_async(_archive(folder_of(where), run, output, url, namespace))
    if as_json:
        typer.echo(msgspec.json.encode({"file": str(file), **msgspec.to_builtins(found)}).decode())
        return
    blobs = f", {counted(found.blobs, 'blob')}" if found.blobs else ""
    told = f"{counted(found.rollouts, 'rollout')}, {counted(found.events, 'event')}{blobs}"
    console.print(f"{file}: {told}, {amount(file.stat().st_size)}", markup=False, soft_wrap=True)
    if found.open:
        console.print(f"{counted(found.open, 'rollout')} of these have not ended: they go on in the log alone")
    if found.unreadable:
        console.print(f"{found.unreadable} that are no events are left out; their dead letters have the bytes")
    if file.suffix == ".gz":
        console.print("replay reads it unpacked: gunzip it first")
    else:
        console.print(f"  {typed('replay', 'list', '--file', str(file))}", markup=False, soft_wrap=True)


def prune_runs(
    *,
    where: Where = None,
    runs: Annotated[
        list[str] | None, typer.Option("--run", help="ID of a run that is to go; may be repeated.", show_default=False)
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="7d", help="Finished runs whose last event is older: 7d, 12h, 30m."),
    ] = None,
    keep: Annotated[
        int | None, typer.Option("--keep", min=0, help="Finished runs but for the newest so many.", show_default=False)
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    url: Url = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Deletes runs, for good, and all blobs that no event needs.

    Only runs of which nothing is open: no rollout is ever cut. A run that is
    pruned can be neither resumed nor rebuilt nor replayed from the log:
    `jetgym log archive` keeps it in a file. While workers serve the log, blobs
    stay. With log.max_age in its config, a deployment prunes by itself.

    \b
    jetgym log prune results/first --run r1129-1612-x7k2
    jetgym log prune --url nats://127.0.0.1:4222 --older-than 7d --keep 5
    """  # noqa: D301 - the help keeps these lines as they are
    choice = Choice(named=tuple(runs or ()), older_than=_span(older_than), keep=keep)
    criteria = choice.older_than is not None or choice.keep is not None
    if bool(choice.named) == criteria:
        raise UsageError("say which runs are to go: --run ID, or --older-than and --keep, and not both")
    if as_json and not yes:
        raise UsageError("--json does not ask: say --yes with it")
    found = run_async(_prune(folder_of(where), choice, url, namespace, yes=yes))
    if as_json:
        typer.echo(msgspec.json.encode(found).decode())
    elif found is not None:
        blobs = f"{counted(found.blobs, 'blob')} of {amount(found.blob_bytes)}" if found.blobs else ""
        events = f"{counted(found.events, 'event')} of {amount(found.bytes)}" if found.runs else ""
        if not found.runs:
            console.print("there is no finished run that fits")
        if found.runs or found.blobs:
            console.print(f"pruned {' and '.join(filter(None, (events, blobs)))}")
        if found.blobs_left:
            told = counted(found.blobs_left, "blob")
            console.print(f"{told} that no event needs stay, since workers serve this log: prune again without them")


def resize_log(
    *,
    where: Where = None,
    max_bytes: Annotated[
        int, typer.Option("--max-bytes", min=-1, help="Bound of a partition in bytes; -1: none.", show_default=False)
    ],
    url: Url = None,
    namespace: Namespace = None,
) -> None:
    """Gives a log another bound, while it is in use: who waits for room in it goes on.

    When the deployment comes up the next time, or the run is resumed, the
    log.max_bytes of its config holds again: change it there too.

    \b
    jetgym log resize results/first --max-bytes 2000000000
    jetgym log resize --url nats://127.0.0.1:4222 --max-bytes -1
    """  # noqa: D301 - the help keeps these lines as they are

    async def change() -> int:
        with working("opening the log"):
            async with opened(folder_of(where), url, namespace) as bus:
                used = await largest_stream(bus)
                if 0 <= max_bytes <= used:
                    raise UsageError(f"--max-bytes {max_bytes} is no more than the log takes now, which is {used}")
                await set_bound(bus, max_bytes)
                return used

    used = run_async(change())
    bound = "has no bound now" if max_bytes < 0 else f"may take {max_bytes:,} bytes now"
    console.print(f"each partition of the log {bound}; the largest takes {used:,}")


async def _usage(folder: Path | None, url: str | None, namespace: str | None, largest: int) -> Usage:
    with working("reading the log"):
        async with opened(folder, url, namespace) as bus:
            return await usage(bus, largest=largest)


async def _archive(
    folder: Path | None, run: str | None, output: Path | None, url: str | None, namespace: str | None
) -> tuple[Path, Archived]:
    with working("reading the log"):
        async with opened(folder, url, namespace) as bus:
            name = await one_run(bus, run, folder)
            file = output or Path(f"{name}.jsonl")
            with new_file(file) as opened_file:
                found = await archive(bus, name, opened_file)
                if not found.rollouts:
                    raise await unknown_run(bus, name)
            return file, found


async def _prune(
    folder: Path | None, choice: Choice, url: str | None, namespace: str | None, *, yes: bool
) -> Pruned | None:
    async with opened(folder, url, namespace) as bus:
        with working("reading the log"):
            there = (await usage(bus, largest=0)).runs
            runs = choose(there, choice, served=await is_served(bus))
        if runs and not yes and not _agreed(runs):
            return None
        with working("pruning"):
            return await prune(bus, [run.run for run in runs])


def _agreed(runs: list[RunUsage]) -> bool:
    _show_runs(runs)
    if not sys.stdin.isatty():
        raise UsageError("this deletes them for good: say --yes where nobody can be asked")
    return typer.confirm(f"delete {counted(len(runs), 'run')} for good?", err=True)


def _span(text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        return read_span(text)
    except ValueError as error:
        raise UsageError(f"--older-than {error}") from None


def _show(found: Usage) -> None:
    told = f"{counted(found.events, 'event')}, {amount(found.bytes)}"
    console.print(f"{told}; {counted(found.blobs, 'blob')}, {amount(found.blob_bytes)}")
    types = [
        (each.type, f"{each.events:,}", amount(each.bytes), amount(each.bytes // max(1, each.events)))
        for each in found.types
    ]
    _print(("event", "events", "bytes", "each"), types)
    _show_runs(found.runs)
    if found.largest:
        largest = [
            (each.rollout, f"{each.events:,}", amount(each.bytes), amount(each.blob_bytes)) for each in found.largest
        ]
        _print(("largest rollouts", "events", "bytes", "blobs"), largest)


def _show_runs(runs: Sequence[RunUsage]) -> None:
    rows = [
        (
            run.run or "of no run",
            f"{run.rollouts:,}",
            f"{run.open:,}",
            f"{run.events:,}",
            amount(run.bytes),
            amount(run.blob_bytes),
            "-" if run.last is None else f"{run.last:%Y-%m-%d %H:%M}",
        )
        for run in runs
    ]
    _print(("run", "rollouts", "open", "events", "bytes", "blobs", "last event\n(UTC)"), rows)


def _print(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    console.print()
    console.print(grid(headings, rows, console.width), soft_wrap=True)
