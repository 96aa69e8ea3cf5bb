"""`replay lint`: is an agent deterministic?"""

from typing import Annotated

import typer
from rich.text import Text

from replay.apart import DEADLINE_S
from replay.commands.common import (
    Config,
    Deadline,
    Files,
    Json,
    Namespace,
    Run,
    Url,
    console,
    resolved,
    run_async,
    use_own_components,
    where,
    write_json,
)
from replay.facts import Facts, facts_of
from replay.findings import near
from replay.lint import Linted, Linter, is_meant
from replay.opening import Where, open_source, run_in
from replay.page import Page, counted, safe
from replay.rows import rows
from replay.source import Source
from replay.verify import Resolved

_ORDERS = 5


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("lint", no_args_is_help=True)(lint)


def lint(
    agent: Annotated[
        str, typer.Argument(metavar="AGENT", help="An agent's instance, or its implementation.", show_default=False)
    ],
    *,
    count: Annotated[int, typer.Option("-n", min=1, help="So many of its rollouts are tried.")] = 5,
    orders: Annotated[int, typer.Option("--orders", min=1, max=100, help="Orders of the replies.")] = _ORDERS,
    config: Config = None,
    deadline: Deadline = DEADLINE_S,
    run: Run = None,
    url: Url = None,
    namespace: Namespace = "jetgym",
    file: Files = None,
    json: Json = False,
) -> None:
    """Finds what is not deterministic in an agent's code, and names the line.

    Recorded rollouts of the agent, or in which another one called it, are run
    again, with their replies in several orders, twice in each of four processes
    that differ in their hash seed. What the code asks for must always be the
    same, else a rollout that loses its worker cannot be carried on. Lines that
    reach for the clock or randomness are named too. What is wrong shows at the
    first call that it changes: of what differs in every run, between processes,
    and with the hash seed, the first each. Mend it and lint again.

    Ends with 0 if it is always the same, 1 if it is not, 2 if it could not run.

    \b
    replay lint solver
    replay lint simple_agent --run last -n 20
    replay lint solver --orders 20 --json
    replay lint solver --file tests/golden/solver.jsonl
    """  # noqa: D301 - the help keeps these lines as they are
    override = resolved(config)
    roots = use_own_components()
    place = where(run, url, namespace, file)
    found = run_async(_lint(place, agent, count, orders, (override, roots, deadline)))
    if json:
        write_json(found)
    else:
        _draw(found)
    raise typer.Exit(1 if found.findings else 0)


async def _lint(
    place: Where, agent: str, count: int, orders: int, code: tuple[Resolved | None, list[str], float]
) -> Linted:
    async with open_source(place) as source:
        facts = await facts_of(source)
        ids = await _chosen(source, facts, await run_in(source, place), agent, count)
        return await Linter(source, facts, *code).lint(agent, ids, orders)


async def _chosen(source: Source, facts: Facts, run: str | None, agent: str, count: int) -> list[str]:
    """Some rollouts of the agent; where there are none, some in which another agent called it."""
    found: list[str] = []
    async for row in rows(source, facts, run):
        if is_meant(facts, agent, row.agent):
            found.append(row.rollout_id)
        if len(found) == count:
            return found
    if found:
        return found
    async for row in rows(source, facts, run):
        if await _calls(source, facts, row.rollout_id, agent):
            found.append(row.rollout_id)
        if len(found) == count:
            break
    return found


async def _calls(source: Source, facts: Facts, rollout: str, agent: str) -> bool:
    """Whether an agent is called in a rollout."""
    async for recorded in source.stream(rollout):
        if recorded.event.type == "agent.requested" and is_meant(facts, agent, recorded.subject.split(".")[3]):
            return True
    return False


def _draw(found: Linted) -> None:
    page = Page(console)
    tried = f"{counted(found.rollouts, 'rollout')} in {counted(found.orders, 'order')} of their replies"
    if not found.findings:
        page.write(Text.assemble((found.agent, "bold"), " ", ("always the same", "bold green"), f"  {tried}"))
    else:
        page.write(Text.assemble((found.agent, "bold"), " ", ("not deterministic", "bold red"), f"  {tried}"))
    for finding in found.findings:
        at = f" at call {finding.call_key}" if finding.call_key else ""
        page.write(Text(f"{safe(near(finding.file))}:{finding.line}{at}", style="bold"), first="  ", rest="  ")
        for told in (finding.why, f"{finding.field or 'call'}: {finding.one}", f"and also: {finding.other}"):
            page.write(Text(safe(told)), first="    ", rest="    ")
        page.write(Text(f"such as {finding.rollout_id}", style="dim"), first="    ", rest="    ")
    for suspect in found.suspects:
        told = (
            f"{safe(near(suspect.file))}:{suspect.line} uses {suspect.what}: self.now(), self.random() and self.uuid()"
        )
        page.write(Text(f"{told} follow from the log", style="yellow"), first="  ", rest="    ")
