"""`replay why`: how an event came about."""

from typing import Annotated

import msgspec
import typer
from rich.text import Text

from replay.causes import Link, chain, event_named
from replay.commands.common import Files, Json, Namespace, Run, Url, console, run_async, where, write_json
from replay.errors import UnknownName
from replay.facts import facts_of
from replay.names import LAST, find_rollout
from replay.opening import Where, open_source, run_in
from replay.page import Page, safe, seconds
from replay.source import Source, load
from replay.trajectory import Trajectory


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` prints."""

    rollout_id: str
    links: list[Link]
    """From the event that was asked about back to the rollout's request."""
    task: msgspec.Raw


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("why", no_args_is_help=True)(why)


def why(
    event: Annotated[
        str,
        typer.Argument(
            metavar="EVENT",
            help="An event's number (of the log or file that is read: an export numbers events anew) or ID, a call's "
            "key, `turn:K`, or `end`.",
            show_default=False,
        ),
    ],
    rollout: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]",
            help="The rollout; without it an event's ID is looked for, and else `last`.",
            show_default=False,
        ),
    ] = None,
    *,
    run: Run = None,
    url: Url = None,
    namespace: Namespace = "jetgym",
    file: Files = None,
    json: Json = False,
) -> None:
    """Tells why an event happened: its cause, the cause of that, and so on back to the task.

    With each event stands who wrote it, what it waited in a queue and was
    worked on, and what happened on its way: adoptions, workers that were lost
    and delivered it again, dead letters. A call's key means its reply.

    Ends with 0, or with 2 if there is no such event.

    \b
    replay why end
    replay why m_2 r1129-1612-x7k2-00003-01
    replay why turn:3 last --run r1129-1612-x7k2
    replay why 117 last --file rollout.jsonl
    replay why policy-0-4xk2-118 --json
    """  # noqa: D301 - the help keeps these lines as they are
    run_async(_why(where(run, url, namespace, file), event, rollout, json=json))


async def _why(place: Where, name: str, rollout: str | None, *, json: bool) -> None:
    async with open_source(place, rollout) as source:
        run = await run_in(source, place, rollout)
        facts = await facts_of(source)
        trajectory = await load(source, await find_rollout(source, rollout or LAST, run))
        try:
            start = event_named(trajectory, name)
        except UnknownName:
            if rollout is not None or (found := await _holding(source, name)) is None:
                raise
            trajectory = await load(source, found)
            start = event_named(trajectory, name)
    if json:
        links = chain(trajectory, start, facts)
        write_json(Why(rollout_id=trajectory.rollout_id, links=links, task=trajectory.request.task))
    else:
        _draw(trajectory, chain(trajectory, start, facts))


async def _holding(source: Source, event_id: str) -> str | None:
    """The rollout that has the event with this ID: each is looked through, one event at a time."""
    async for recorded in source.outline():
        if recorded.event.type == "rollout.requested":
            async for each in source.stream(recorded.event.rolloutid):
                if each.event.id == event_id:
                    return each.event.rolloutid
    return None


def _draw(trajectory: Trajectory, links: list[Link]) -> None:
    page = Page(console)
    page.write(Text.assemble((trajectory.rollout_id, "bold"), f"  event {links[0].seq}"))
    page.rule()
    width = max(len(str(link.seq)) for link in links)
    margin = " " * (width + 13)
    for place, link in enumerate(links):
        first = Text(f"{link.seq:>{width}} {link.at_s:>9.3f} s ", style="dim")
        key = f" {link.call_key}" if link.call_key else ""
        by = Text(f"by {link.worker}", style="dim")
        page.write(Text.assemble((safe(link.type), "bold"), key), first=first, rest=margin, right=by)
        page.write(Text(safe(link.why)), first=margin, rest=margin)
        if link.worked_s is not None and link.waited_s is not None:
            told = f"waited {seconds(link.waited_s)}, worked {seconds(link.worked_s)}"
            page.write(Text(told, style="dim"), first=margin, rest=margin)
        for note in link.notes:
            page.write(Text(safe(note), style="yellow"), first=margin, rest=margin)
        if place < len(links) - 1:
            page.write(Text("↑", style="dim"), first=margin)
    if links[-1].seq != trajectory.requested.seq:
        page.write(Text("what was before is not in this rollout", style="yellow"), first=margin)
