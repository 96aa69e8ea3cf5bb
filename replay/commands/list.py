"""`replay list`: the rollouts of a run, or the runs, one line each."""

from typing import Annotated

import typer

from replay.commands.common import Files, Json, Namespace, Run, Url, console, run_async, where, write_json
from replay.facts import facts_of
from replay.listing import RowTable, draw_runs
from replay.opening import Where, open_source, run_in
from replay.rows import Keep, rows, selection
from replay.runs import local_runs, runs_in

LIMIT = 50


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("list")(list_rollouts)


def list_rollouts(
    *,
    run: Run = None,
    agent: Annotated[str | None, typer.Option(help="Only rollouts of this agent.", show_default=False)] = None,
    environment: Annotated[
        str | None, typer.Option(help="Only rollouts in this resources instance.", show_default=False)
    ] = None,
    reward_below: Annotated[
        float | None, typer.Option(help="Only rollouts with a reward below this.", show_default=False)
    ] = None,
    reward_above: Annotated[
        float | None, typer.Option(help="Only rollouts with a reward above this.", show_default=False)
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only rollouts that failed or were cancelled.")] = False,
    limit: Annotated[
        int | None,
        typer.Option(min=0, help=f"Show so many, 0 for all; {LIMIT} by default, with --json all.", show_default=False),
    ] = None,
    runs: Annotated[bool, typer.Option("--runs", help="List the runs instead.")] = False,
    url: Url = None,
    namespace: Namespace = "jetgym",
    file: Files = None,
    json: Json = False,
) -> None:
    """Lists the rollouts of a run, by default of the newest in results/, in the order in which they ended.

    \b
    replay list
    replay list --run r1129-1612-x7k2 --failed
    replay list --agent solver --reward-below 0.5 --limit 10
    replay list --url nats://127.0.0.1:4222 --run last
    replay list --json | jq -r 'select(.reward == 1).rollout_id'
    replay list --runs
    """  # noqa: D301 - the help keeps these lines as they are
    place = where(run, url, namespace, file)
    if runs:
        run_async(_runs(place, json=json))
        return
    keep = selection(
        agent=agent, environment=environment, reward_below=reward_below, reward_above=reward_above, failed=failed
    )
    shown = (limit or None) if limit is not None else None if json else LIMIT
    run_async(_rollouts(place, keep, shown, json=json))


async def _rollouts(place: Where, keep: Keep, limit: int | None, *, json: bool) -> None:
    async with open_source(place) as source:
        facts = await facts_of(source)
        table = RowTable(console, limit)
        written = 0
        async for row in rows(source, facts, await run_in(source, place)):
            if not keep(row):
                continue
            if json:
                write_json(row)
                written += 1
                if written == limit:
                    return
            else:
                table.add(row)
        if not json:
            table.end()


async def _runs(place: Where, *, json: bool) -> None:
    if place.is_local:
        found = local_runs(place.results)
    else:
        async with open_source(place) as source:
            found = await runs_in(source)
    if json:
        for run in found:
            write_json(run)
    elif found:
        draw_runs(found, console)
    else:
        console.print("no runs")
