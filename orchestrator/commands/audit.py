"""`jetgym audit`: does a run balance?"""

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from orchestrator.audit import Audit, audit
from orchestrator.commands.common import console, run_async
from orchestrator.commands.logs import Json, Namespace, Url, Where, folder_of, one_run, opened, unknown_run, working
from orchestrator.hints import counted


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("audit", no_args_is_help=True)(command)


def command(
    where: Where = None,
    run: Annotated[
        str | None, typer.Option("--run", help="ID of the run, where the log holds several.", show_default=False)
    ] = None,
    url: Url = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Balances a run from its log alone.

    Requested = completed + failed + cancelled + in flight. Lists each rollout
    that does not balance, with the reason. Works while the run goes on, and
    when it is over. Ends with 0 if all balances, 1 if not, 2 if it could not
    look.

    \b
    jetgym audit results/first
    jetgym audit results/first --json
    jetgym audit --url nats://127.0.0.1:4222 --run r1129-1612-x7k2
    """  # noqa: D301 - the help keeps these lines as they are
    found = run_async(_audit(folder_of(where), run, url, namespace))
    if as_json:
        typer.echo(msgspec.json.encode(found).decode())
    else:
        _show(found)
    if not found.balanced:
        raise typer.Exit(1)


async def _audit(folder: Path | None, run: str | None, url: str | None, namespace: str | None) -> Audit:
    with working("reading the log"):
        async with opened(folder, url, namespace) as bus:
            name = await one_run(bus, run, folder)
            found = await audit(bus, name)
            if not found.exists:
                raise await unknown_run(bus, name)
            return found


def _show(found: Audit) -> None:
    console.print(f"run {found.run_id}", style="bold", markup=False)
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name in ("requested", "completed", "failed", "cancelled", "in_flight"):
        table.add_row(name.replace("_", " "), f"{getattr(found, name):,}", end_section=name == "requested")
    console.print(table)
    if found.again:
        console.print(f"{counted(found.again, 'request')} of these are new attempts of rollouts that failed")
    if found.not_yet_asked:
        console.print(f"{found.not_yet_asked:,} of the {found.planned:,} rollouts of the run are not asked for yet")
    console.print(f"{counted(found.calls, 'call')}, {found.open_calls:,} of them without a reply")
    if found.balanced:
        console.print("balanced", style="bold green")
        return
    console.print(f"not balanced: {counted(len(found.unbalanced), 'rollout')}", style="bold red")
    for problem in found.unbalanced:
        console.print(f"  {problem.rollout}: {problem.message}", markup=False, soft_wrap=True)
