"""`replay diff`: how two rollouts differ, and where they first part."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from replay.changed import draw_changes
from replay.commands.common import Files, Json, Namespace, Run, Url, console, run_async, where, write_parts
from replay.diff import By, CallDifference, Difference, TokenDifference, difference
from replay.errors import Misused, UnknownName
from replay.names import find_rollout
from replay.opening import Where, open_source, run_in
from replay.page import Page, counted, number, safe
from replay.source import load, with_captures
from replay.trajectory import Trajectory

_CHANGES = 6
_STYLES = {"same": "dim", "differs": "yellow", "removed": "red", "added": "green"}
_WORDS = {"differs": "differs", "removed": "only in the first", "added": "only in the second"}


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("diff", no_args_is_help=True)(diff)


def diff(
    one: Annotated[
        str, typer.Argument(metavar="A", help="A rollout's ID, its beginning, or `last`.", show_default=False)
    ],
    other: Annotated[
        str | None,
        typer.Argument(metavar="[B]", help="Another one. Without it A is a fork, compared with its parent."),
    ] = None,
    *,
    by: Annotated[
        By, typer.Option("--by", help="Align calls by their key, or by their place in their turn: for other code.")
    ] = "key",
    run: Run = None,
    url: Url = None,
    namespace: Namespace = "jetgym",
    file: Files = None,
    with_run: Annotated[
        str | None, typer.Option("--with-run", metavar="RUN", help="The run that B is in.", show_default=False)
    ] = None,
    with_url: Annotated[
        str | None, typer.Option("--with-url", metavar="URL", help="The log that B is in.", show_default=False)
    ] = None,
    with_file: Annotated[
        list[Path] | None,
        typer.Option("--with-file", metavar="FILE", help="The file that B is in.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Compares two rollouts call by call: what was asked, answered and generated, word by word, and the rewards.

    Two attempts at one task, a rollout and its fork, or the same rollout in a
    log and in a file. IDs and times that are new in each rollout count for
    nothing; where both have tokens these are compared too.

    Ends with 0 if they are the same, 1 if they differ, 2 if one cannot be read.

    \b
    replay diff r1129-1612-x7k2-00003-00 r1129-1612-x7k2-00003-01
    replay diff f1129-1640-p2mk-00003-00
    replay diff last last --with-file yesterday.jsonl --by turn
    replay diff last r1128-0900-abcd-00003-00 --json | jq .calls
    """  # noqa: D301 - the help keeps these lines as they are
    place = where(run, url, namespace, file)
    elsewhere = where(with_run, with_url, namespace, with_file)
    named = bool(with_run or with_url or with_file)
    found = run_async(_diff(place, elsewhere if named else place, one, other, by, named=named))
    if json:
        write_parts(found.json())
    else:
        draw_difference(found, console)
    raise typer.Exit(0 if found.verdict == "same" else 1)


async def _diff(place: Where, there: Where, one: str, other: str | None, by: By, *, named: bool) -> Difference:
    first = await _load(place, one)
    if other is None:
        fork = first.request.fork
        if fork is None:
            raise Misused(f"{first.rollout_id} is no fork: name the rollout to compare it with")
        try:
            parent = await _load(there, fork.rollout)
        except UnknownName:
            if named or place.run is None:
                raise
            parent = await _load(msgspec.structs.replace(place, run=None), fork.rollout)
        first, second = parent, first
    else:
        second = await _load(there, other)
    return difference(first, second, by=by)


async def _load(place: Where, name: str) -> Trajectory:
    async with open_source(place, name) as source:
        run = await run_in(source, place, name)
        return await with_captures(source, await load(source, await find_rollout(source, name, run)))


def draw_difference(found: Difference, console: Console) -> None:
    """Tells what differs, in the order in which it happened."""
    page = Page(console)
    for name, reward, outcome in zip((found.one, found.other), found.rewards, found.outcomes, strict=True):
        page.write(Text(name, style="bold"), right=Text(outcome if reward is None else f"reward {number(reward)}"))
    page.rule()
    if found.verdict == "same":
        page.write(Text(f"the same in {counted(found.counts.get('same', 0), 'call')}", style="green"))
        return
    if found.task:
        page.write(Text("the tasks differ", style="yellow"))
        draw_changes(found.task, console, "  ", _CHANGES)
    skipped, parted = 0, False
    for call in found.calls:
        if call.status == "same":
            skipped += 1
            continue
        if not parted:
            page.write(Text(f"the same in {counted(skipped, 'call')}, then they part at {call.label}", style="bold"))
        elif skipped:
            page.write(Text(f"… {counted(skipped, 'call')} the same", style="dim"))
        parted = True
        skipped = 0
        _draw_call(call, page, console)
    if found.result:
        page.write(Text("results", style="bold"))
        draw_changes(found.result, console, "  ", _CHANGES)
    if None not in found.rewards:
        one, other = found.rewards
        assert one is not None
        assert other is not None
        page.write(Text(f"reward {number(one)} → {number(other)} ({other - one:+.4g})", style="bold"))


def _draw_call(call: CallDifference, page: Page, console: Console) -> None:
    target = f"  {call.target[0]} → {call.target[1]}" if any(call.target) else ""
    status = _WORDS[call.status]
    place = "→".join(f"#{seq}" for seq in call.seqs if seq)
    keys = "→".join(dict.fromkeys(key for key in call.keys if key))
    page.blank()
    page.write(
        Text.assemble((f"turn {call.turn} {call.what}", "bold"), safe(target), "  ", (status, _STYLES[call.status])),
        right=Text(f"{place} {keys}", style="dim"),
    )
    for label, changes in (("asks", call.request), ("answers", call.reply)):
        if changes:
            page.write(Text(label, style="dim"), first="  ")
            draw_changes(changes, console, "    ", _CHANGES)
    if call.tokens is not None and call.tokens.same < max(call.tokens.lengths):
        page.write(Text(_tokens(call.tokens)), first="  ", rest="  ")


def _tokens(tokens: TokenDifference) -> str:
    told = [
        "its end" if token is None else f"{token}" + ("" if logprob is None else f" (logprob {logprob:.3g})")
        for token, logprob in zip(tokens.tokens, tokens.logprobs, strict=True)
    ]
    lengths = f"{tokens.lengths[0]} and {tokens.lengths[1]} tokens"
    return f"{lengths}, the same up to {tokens.same}; then {told[0]} against {told[1]}"
