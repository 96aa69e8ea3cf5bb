"""`replay stats`: a run at a glance."""

from typing import Annotated

import typer

from replay.charts import draw_figures
from replay.commands.common import Files, Json, Namespace, Run, Url, console, run_async, where, write_json
from replay.errors import Misused, UnknownName
from replay.facts import facts_of
from replay.figures import figures_of
from replay.opening import Where, open_source, run_in
from replay.rows import Keep, selection


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("stats")(stats)


def stats(
    name: Annotated[
        str | None, typer.Argument(metavar="RUN", help="As --run; the newest by default.", show_default=False)
    ] = None,
    *,
    run: Run = None,
    agent: Annotated[str | None, typer.Option(help="Only rollouts of this agent.", show_default=False)] = None,
    environment: Annotated[
        str | None, typer.Option(help="Only rollouts in this resources instance.", show_default=False)
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only what requests and ends say: no latencies of calls, no tools.")
    ] = False,
    url: Url = None,
    namespace: Namespace = "jetgym",
    file: Files = None,
    json: Json = False,
) -> None:
    """Sums up a run: rewards, lengths, tools, failures, latencies, policy versions, with histograms.

    "queued" is what a call waited and travelled; the times before it are what
    its callee took. Of a called agent that is all of its time, since how much
    of it is queue is not measured. Quantiles are exact to three digits; memory
    does not grow with the run. Failures are told by their kind, with rollouts
    to look at.

    Ends with 0, or with 2 if there is nothing to read.

    \b
    replay stats
    replay stats r1129-1612-x7k2 --agent solver
    replay stats --url nats://127.0.0.1:4222 last
    replay stats --file run.jsonl
    replay stats --quick --json | jq .reward.mean
    """  # noqa: D301 - the help keeps these lines as they are
    if name is not None and run is not None:
        raise Misused("name the run once: as RUN or with --run")
    keep = selection(agent=agent, environment=environment)
    run_async(_stats(where(name or run, url, namespace, file), keep, calls=not quick, json=json))


async def _stats(place: Where, keep: Keep, *, calls: bool, json: bool) -> None:
    async with open_source(place) as source:
        facts = await facts_of(source)
        run = await run_in(source, place)
        figures = await figures_of(source, facts, run, keep, calls=calls)
        if not figures.rollouts:
            raise UnknownName(f"there is no such rollout in {source.name}")
    if json:
        write_json(figures)
    else:
        draw_figures(figures, console)
