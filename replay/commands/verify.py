"""`replay verify`: runs agents' code again on what is recorded, and says where it departs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from replay.bulk import Bulk, Summary
from replay.commands.common import (
    Config,
    Files,
    Json,
    Namespace,
    Run,
    Url,
    by_source,
    console,
    errors,
    run_async,
    use_own_components,
    where,
    write_json,
)
from replay.errors import Misused, UnknownName
from replay.facts import Facts, facts_of
from replay.findings import draw_summary, draw_verdict
from replay.names import find_rollout
from replay.opening import Where, open_source, run_in
from replay.places import read_config
from replay.rows import rows
from replay.source import Source
from replay.verify import Resolved


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("verify", no_args_is_help=True)(verify)


def verify(
    rollouts: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID…", help="Rollouts, by ID, its beginning, or `last`.", show_default=False),
    ] = None,
    *,
    run: Run = None,
    config: Config = None,
    url: Url = None,
    namespace: Namespace = "jetgym",
    file: Files = None,
    json: Json = False,
) -> None:
    """Runs the agent's code that is here now on the recorded replies, and says where it first does something else.

    Nothing is called and nothing is written. Every request is compared byte
    for byte, and the result at the end. Where code and recording part, it says
    which call, which line and which field, and whether the agent's source has
    changed since. Without IDs, all rollouts of the run are verified.

    Ends with 0 if all are the same, 1 if one differs, 2 if one could not be run.

    \b
    replay verify last
    replay verify r1129-1612-x7k2-00003-01 r1129-1612-x7k2-00003-02
    replay verify --run last
    replay verify --run r1129-1612-x7k2 --json > verdicts.jsonl
    replay verify --file tests/golden/solver.jsonl
    """  # noqa: D301 - the help keeps these lines as they are
    place = where(run, url, namespace, file)
    if not rollouts and run is None and not file:
        raise Misused("name rollouts, or a run with --run (`--run last` is the newest)")
    override = read_config(config) if config is not None else None
    roots = use_own_components()
    summary = Summary()
    for source, names in by_source(place, rollouts or []):
        run_async(_verify(source, names, override, roots, summary, json=json))
    if not json and not rollouts:
        draw_summary(summary, console)
    raise typer.Exit(summary.exit_code)


async def _verify(
    place: Where, names: list[str], override: Resolved | None, roots: list[str], summary: Summary, *, json: bool
) -> None:
    async with open_source(place) as source:
        facts = await facts_of(source)
        run = await run_in(source, place)
        ids = [await find_rollout(source, name, run) for name in names] if names else await _all(source, facts, run)
        async with Bulk(source, facts, override, roots) as bulk:
            with _progress(len(ids), quiet=bool(names)) as advance:
                async for verdict in bulk.verify(ids):
                    summary.add(verdict)
                    advance()
                    if json:
                        write_json(verdict)
                    elif names:
                        draw_verdict(verdict, console)


async def _all(source: Source, facts: Facts, run: str | None) -> list[str]:
    found = [row.rollout_id async for row in rows(source, facts, run)]
    if not found:
        raise UnknownName(f"there is no rollout in {source.name}")
    return found


@contextmanager
def _progress(total: int, *, quiet: bool) -> Iterator[Callable[[], None]]:
    """A bar on the terminal; `quiet` for a few rollouts that are told one by one."""
    with Progress(
        TextColumn("verifying"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=errors,
        disable=quiet or not errors.is_terminal,
        transient=True,
    ) as bar:
        task = bar.add_task("verifying", total=total)
        yield lambda: bar.advance(task)
