"""`replay list`: the rollouts of a run, or the runs, one line each."""

from collections.abc import Callable, Sequence
from typing import Annotated

import typer
from typer.core import TyperCommand

from replay.columns import Top, columns
from replay.commands.common import Files, Json, Namespace, Run, Url, console, errors, run_async, where, write_json
from replay.facts import facts_of
from replay.listing import Column, RowTable, draw_runs
from replay.opening import Where, open_source, run_in
from replay.places import live_deployments
from replay.rows import made, selection
from replay.runs import local_runs, runs_in
from replay.source import says
from replay.ui.entries import Entries, Entry
from replay.ui.filters import filter_of, key_of

LIMIT = 50


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("list", cls=_Words)(list_rollouts)


class _Words(TyperCommand):
    """The command, to which a word that begins with a - is no option."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Puts words such as `-error:deadline` behind a `--`, but for what is the value of an option."""
        options = [option for option in self.get_params(ctx) if option.param_type_name == "option"]
        valued = {name for option in options if not getattr(option, "is_flag", False) for name in option.opts}
        end = args.index("--") if "--" in args else len(args)
        rest: list[str] = []
        denied: list[str] = []
        for before, word in zip(["", *args], args[:end], strict=False):
            is_word = len(word) > len("-n") and word[0] == "-" != word[1] and before not in valued
            (denied if is_word else rest).append(word)
        if rest and rest[-1] in valued:
            return super().parse_args(ctx, rest)  # which says that it has no value
        return super().parse_args(ctx, [*rest, "--", *denied, *args[end + 1 :]])


def list_rollouts(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[WORDS]", help="What is wanted, as in the web app: reward<0.5 turns>=3.", show_default=False
        ),
    ] = None,
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
    grep: Annotated[
        str | None,
        typer.Option("--grep", metavar="TEXT", help="Only rollouts in whose events it stands.", show_default=False),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option("--sort", metavar="NAME", help="Sort by reward, turns, …; the largest first: -reward."),
    ] = None,
    shows: Annotated[
        str | None, typer.Option("--columns", metavar="A,B", help="Show these columns.", show_default=False)
    ] = None,
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

    WORDS are joined by "and", a - before one denies it. Compared (< <= = != >=
    >) are reward, turns, tools, tokens, in, out, duration, queued, version (the
    oldest policy), revised, adoptions, task, index (in its group), attempt and
    started (2026-11-30 or 2026-11-30T12:30, UTC); looked into (:) are rollout, run, agent, environment, outcome, error,
    group, parent and text, what the task says. Another word is looked for in
    these texts. The same names are those of --sort and --columns.

    \b
    replay list
    replay list --run r1129-1612-x7k2 --failed
    replay list agent:solver "reward<0.5" "duration>10" --limit 10
    replay list "version>=3" -outcome:completed
    replay list --sort -tokens --columns rollout,reward,tokens,text
    replay list --grep "I cannot"
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
    worded = filter_of(" ".join(words or []))
    shown = (limit or None) if limit is not None else None if json else LIMIT
    wanted = columns(shows)
    run_async(_rollouts(place, lambda row: keep(row) and worded(row), grep, shown, sort=sort, shown=wanted, json=json))
    for folder in live_deployments(place.results) if place.is_local and run is None else ():
        told = f"{folder} is live: what runs there is listed with --run {folder}"
        errors.print(told, markup=False, soft_wrap=True)


async def _rollouts(
    place: Where,
    keep: Callable[[Entry], bool],
    grep: str | None,
    limit: int | None,
    *,
    sort: str | None,
    shown: Sequence[Column[Entry]],
    json: bool,
) -> None:
    top = Top(key_of(sort.removeprefix("-")), limit, descending=sort.startswith("-")) if sort else None
    async with open_source(place) as source:
        facts = await facts_of(source)
        book = Entries(facts)
        table = RowTable(console, limit, shown)
        written = 0
        async for row in made(source, book.requested, book.ended, await run_in(source, place)):
            if not keep(row) or (grep is not None and not await says(source, row.rollout_id, grep)):
                continue
            if top is not None:
                top.add(row)
                table.count(row)
            elif json:
                write_json(row)
                written += 1
                if written == limit:
                    return
            else:
                table.add(row)
        for row in top.rows if top is not None else ():
            if json:
                write_json(row)
            else:
                table.show(row)
        if not json:
            table.end()


async def _runs(place: Where, *, json: bool) -> None:
    if place.is_local and place.run is None:
        found = local_runs(place.results)
    else:
        async with open_source(place) as source:
            only = await run_in(source, place)
            found = [run for run in await runs_in(source) if only in (None, run.run_id)]
    if json:
        for run in found:
            write_json(run)
    elif found:
        draw_runs(found, console)
    else:
        console.print("no runs")
