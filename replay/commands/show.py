"""`replay show`: the story of one rollout."""

from typing import Annotated

import typer

from replay.commands.common import Files, Json, Namespace, Run, Url, console, run_async, where, write_line, write_parts
from replay.document import document
from replay.errors import Misused
from replay.exports.lines import Lines
from replay.facts import facts_of
from replay.following import follow, following
from replay.header import draw_header
from replay.names import find_rollout
from replay.opening import Where, open_source, run_in
from replay.source import load
from replay.story import Story


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("show", no_args_is_help=True)(show)


def show(
    rollout: Annotated[
        str, typer.Argument(metavar="ID", help="A rollout's ID, the beginning of it, or `last`.", show_default=False)
    ],
    *,
    run: Run = None,
    full: Annotated[bool, typer.Option("--full", help="Show long contents whole.")] = False,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="Print the rollout's stored events as they are, one a line. How its agent was configured is not among "
            "them: `verify --file` needs the run's config.yaml too, as --config.",
        ),
    ] = False,
    follows: Annotated[
        bool, typer.Option("--follow", help="Go on until the rollout has ended, and tell what happens.")
    ] = False,
    url: Url = None,
    namespace: Namespace = "jetgym",
    file: Files = None,
    json: Json = False,
) -> None:
    """Tells one rollout from its request to its reward: who said what, when, and where it ran.

    Times on the left are seconds since the rollout was requested. A call's
    own time is what its worker took; "queued" is what it waited and travelled.
    On the right stand the number of the call's event, as `fork --at` takes
    it, its key, and the worker that answered it.

    \b
    replay show last
    replay show r1129-1612-x7k2-00003-01 --full
    replay show last --run r1129-1612-x7k2
    replay show r1129-1612-x7k2-00003-01 --follow
    replay show r1129-1612-x7k2-00003-01 --follow --raw | jq .type
    replay show last --raw > rollout.jsonl
    replay show last --file rollout.jsonl
    replay verify --file rollout.jsonl --config results/first/config.yaml
    """  # noqa: D301 - the help keeps these lines as they are
    if raw and json:
        raise Misused("give either --raw or --json")
    if follows and json:
        raise Misused("--follow tells the story, or with --raw the events, one JSON object a line: give one of these")
    if follows and file:
        raise Misused("nothing is added to a file of exported events: --follow is for a log")
    run_async(_show(where(run, url, namespace, file), rollout, full=full, raw=raw, json=json, follows=follows))


async def _show(place: Where, name: str, *, full: bool, raw: bool, json: bool, follows: bool) -> None:
    async with open_source(place, name) as source:
        run = await run_in(source, place, name)
        rollout = await find_rollout(source, name, run)
        if raw:
            lines = Lines(source)
            async for recorded in following(source, rollout) if follows else source.stream(rollout):
                async for line in lines.of(recorded):
                    write_line(line)
            return
        trajectory = await load(source, rollout)
        facts = await facts_of(source)
        if follows:
            draw_header(trajectory, facts, console)
            async for piece in follow(source, rollout, console, full=full):
                console.file.write(piece)
                console.file.flush()
            return
    if json:
        write_parts(document(trajectory, facts))
    else:
        draw_header(trajectory, facts, console)
        Story(trajectory, console, full=full).draw()
