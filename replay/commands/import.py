"""`replay import`: exported events into a log."""  # noqa: N999 - a command has the name of its module

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from secrets import token_hex
from shutil import rmtree
from typing import Annotated

import typer
import yaml
from rich.status import Status

from bus import Bus, EmbeddedServer, LogConfig
from bus.errors import LogFull
from bus.room import unless_full
from bus.run_folder import CONFIG, LOG
from replay.commands.common import Json, console, errors, run_async, write_json
from replay.errors import CannotImport, Contradicted, Misused
from replay.file_source import FileSource
from replay.imports import Imported, import_events, log_of_file
from replay.page import counted
from replay.runs import note_imported

_SHOWN_EACH = 100


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("import", no_args_is_help=True)(import_file)


def import_file(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Files of exported events.", show_default=False)],
    *,
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="nats://HOST:PORT", help="Into the log at this server.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A new directory, with a log of its own.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Takes exported events (`replay export`, `jetgym log archive`) into a log, byte for byte and in their order.

    With --output the log is in a new directory, which every command reads with
    --run DIRECTORY; where that is in results/, its runs are named and listed
    like those that ran here. With --url it is the log at that server, which is
    made if it is not there. Events keep their IDs: what the log has already is
    left as it is, and importing twice adds nothing; files may overlap. Where
    the log, or another file, has another event in the same place, nothing is
    written. A log that workers serve is refused, since they would take the
    recorded requests for new ones.

    Ends with 0, with 1 if the log contradicts the file, with 2 if it does not
    take it.

    \b
    replay import rollout.jsonl --output results/old
    replay import run.jsonl --url nats://127.0.0.1:4222
    replay import a.jsonl b.jsonl --output results/both --json
    replay list --run results/old
    """  # noqa: D301 - the help keeps these lines as they are
    if (url is None) == (output is None):
        raise Misused("say where to: either --output with a new directory, or --url")
    if output is not None and output.exists():
        raise Misused(f"{output} is there already: name a new directory")
    try:
        told = run_async(_import(files, url, output))
    except Contradicted as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
    if json:
        write_json(told)
    else:
        already = f", {told.there:,} of them were there" if told.there else ""
        console.print(
            f"{counted(told.rollouts, 'rollout')}, {counted(told.events, 'event')}{already}: {output or url}",
            markup=False,
            soft_wrap=True,
        )


async def _import(files: list[Path], url: str | None, output: Path | None) -> Imported:
    source = FileSource(files)
    log = await log_of_file(source)
    try:
        with errors.status("importing") as status:
            async with _connected(log, url, output) as bus:
                await bus.ensure_log()
                imported = await unless_full(bus, import_events(source, bus, lambda done: _show(status, done)))
            if output is not None:
                await note_imported(output, source)
    except BaseException as error:
        if output is not None:  # half an import looks like a run
            rmtree(output, ignore_errors=True)
            if isinstance(error, LogFull):  # it has no bound
                raise CannotImport(f"there is no room for this on the disk of {output.parent}: make some") from error
        raise
    return imported


def _show(status: Status, done: int) -> None:
    if done % _SHOWN_EACH == 0:
        status.update(f"importing: {done:,} events")


@asynccontextmanager
async def _connected(log: LogConfig, url: str | None, output: Path | None) -> AsyncIterator[Bus]:
    writer = f"import-{token_hex(4)}"
    if url is not None:
        async with await Bus.connect(url, log, name=f"replay/{writer}", writer=writer) as bus:
            yield bus
        return
    assert output is not None
    _make(output, log)
    server = await EmbeddedServer.start(output / LOG, log)
    try:
        async with await Bus.connect(server.url, log, name=f"replay/{writer}", writer=writer) as bus:
            yield bus
    finally:
        await server.stop()


def _make(output: Path, log: LogConfig) -> None:
    """The directory, with as much of a config as says how its log was made."""
    output.mkdir(parents=True)
    (output / CONFIG).write_text(yaml.safe_dump({"log": log.model_dump(mode="json")}))
