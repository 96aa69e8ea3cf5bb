"""`replay retool`: recorded tool calls, made again with the tools that are here now."""

from collections import Counter
from collections.abc import Mapping

import msgspec
import typer
from rich.text import Text

from replay.apart import DEADLINE_S
from replay.bulk import Bulk, anonymous
from replay.changed import told_pieces
from replay.commands.common import (
    Config,
    Deadline,
    Files,
    Ids,
    Json,
    Namespace,
    Run,
    Url,
    by_source,
    chosen,
    console,
    named,
    resolved,
    run_async,
    use_own_components,
    write_json,
)
from replay.errors import ReplayError
from replay.facts import facts_of
from replay.opening import Where, open_source
from replay.page import counted
from replay.rescoring import Retooled
from replay.source import load
from replay.verify import Resolved
from replay.words import word_pieces

_EXAMPLES = 3


class ToolRow(msgspec.Struct, kw_only=True):
    """One tool, over all calls of it."""

    instance: str
    tool: str
    same: int = 0
    differs: int = 0
    could_not_run: int = 0
    examples: list[Retooled] = []


class _Found:
    """Each tool, and why rollouts could not be looked at."""

    def __init__(self) -> None:
        self.tools: dict[tuple[str, str], ToolRow] = {}
        self.problems: Counter[str] = Counter()


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("retool", no_args_is_help=True)(retool)


def retool(
    rollouts: Ids = None,
    *,
    run: Run = None,
    config: Config = None,
    deadline: Deadline = DEADLINE_S,
    url: Url = None,
    namespace: Namespace = "jetgym",
    file: Files = None,
    json: Json = False,
) -> None:
    """Makes recorded tool calls again with the tools that are here now, each session from its seed on.

    A tool whose output differs has changed, or is flaky: the same call, on the
    same session, does not give the same. Nothing is written to the log; what a
    tool does outside of its session, it does again. Calls that no tool answered
    (in flight, cancelled, its worker lost) have no output to compare.

    Ends with 0 if all outputs are the same, 1 if one differs, 2 if one could not be made.

    \b
    replay retool last
    replay retool --run last
    replay retool --run last --json | jq 'select(.verdict == "differs")'
    """  # noqa: D301 - the help keeps these lines as they are
    place = named(rollouts, run, url, namespace, file)
    override = resolved(config)
    roots = use_own_components()
    found = _Found()
    for source, names in by_source(place, rollouts or []):
        run_async(_retool(source, names, override, roots, found, deadline_s=deadline, json=json))
    if not json:
        draw(list(found.tools.values()), found.problems)
    seen = found.tools.values()
    failed = found.problems or any(row.could_not_run for row in seen)
    raise typer.Exit(2 if failed else 1 if any(row.differs for row in seen) else 0)


async def _retool(
    place: Where,
    names: list[str],
    override: Resolved | None,
    roots: list[str],
    found: "_Found",
    *,
    deadline_s: float,
    json: bool,
) -> None:
    async with open_source(place) as source:
        facts = await facts_of(source)
        ids = await chosen(source, place, names, facts)
        async with Bulk(source, facts, override, roots, deadline_s=deadline_s) as bulk:
            for rollout in ids:
                try:
                    calls = await bulk.retool(await load(source, rollout))
                except ReplayError as error:
                    found.problems[str(error)] += 1
                    if json:
                        write_json(_untold(rollout, error))
                    continue
                for call in calls:
                    _count(found.tools, call)
                    if json:
                        write_json(call)


def _untold(rollout: str, error: ReplayError) -> Retooled:
    """What `--json` tells of a rollout whose calls could not be made: one line without a call."""
    reason = anonymous(str(error), rollout)
    return Retooled(rollout_id=rollout, call="", seq=0, instance="", tool="", verdict="could not run", reason=reason)


def _count(tools: dict[tuple[str, str], ToolRow], call: Retooled) -> None:
    row = tools.setdefault((call.instance, call.tool), ToolRow(instance=call.instance, tool=call.tool))
    row.same += call.verdict == "same"
    row.differs += call.verdict == "differs"
    row.could_not_run += call.verdict == "could not run"
    if call.verdict != "same" and len(row.examples) < _EXAMPLES:
        row.examples.append(call)


def draw(tools: list[ToolRow], problems: Mapping[str, int]) -> None:
    """Tells each tool, those that differ most first."""
    if not tools and not problems:
        console.print("no tool was called")
    for row in sorted(tools, key=lambda row: (-row.differs, row.tool)):
        total = row.same + row.differs + row.could_not_run
        style = "yellow" if row.could_not_run else "red" if row.differs else "green"
        told = f"{counted(total, 'call')}, {row.same:,} the same, {row.differs:,} different"
        told += f", {row.could_not_run:,} could not be made" if row.could_not_run else ""
        console.print(Text.assemble((f"{row.instance} {row.tool}", "bold"), "  ", (told, style)), soft_wrap=True)
        for call in row.examples:
            said = Text(call.reason) if call.reason else told_pieces(word_pieces(_text(call.was), _text(call.now)))
            console.print(Text.assemble((f"  {call.rollout_id} {call.call}  ", "dim"), said), soft_wrap=True)
    for why, count in problems.items():
        console.print(f"{counted(count, 'time')}: {why}", style="yellow", markup=False, soft_wrap=True)


def _text(output: msgspec.Raw) -> str:
    value = msgspec.json.decode(output)
    return value if isinstance(value, str) else bytes(output).decode()
