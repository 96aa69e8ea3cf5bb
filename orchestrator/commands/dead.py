"""`jetgym dead`: what could not be processed, and what is to become of it."""

import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import typer
from rich.table import Table

from bus import Bus
from bus.errors import LogFull
from bus.letters import Letter, letter, letters
from bus.room import unless_full
from orchestrator.attempts import NotAgain
from orchestrator.commands.common import console, run_async
from orchestrator.commands.logs import Json, Namespace, Url, Where, folder_of, opened, words_for, working
from orchestrator.dead import LetterDocument, document, drop, requeue
from orchestrator.errors import UsageError
from orchestrator.full_log import no_room
from orchestrator.hints import counted

_ID: Final = re.compile(r"\d+-\d+\Z")
_MESSAGE: Final = 200
"""Characters of a message in the table."""

Named = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN | ID",
        help="Directory of a run or of `jetgym up`; and IDs of dead letters, like 0-57, as `list` shows them.",
        show_default=False,
    ),
]
NamedOrAll = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="RUN | ID",
        help="Directory of a run or of `jetgym up`; and IDs of dead letters, like 0-57, as `list` shows them.",
        show_default=False,
    ),
]


class _Asked(NamedTuple):
    """Which log, and which letters in it."""

    folder: Path | None
    url: str | None
    namespace: str | None
    ids: list[str]


def add_to(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(
        help="Dead letters: requests and replies that could not be processed, with the reason and their bytes.",
        no_args_is_help=True,
    )
    group.command("list")(list_letters)
    group.command("show", no_args_is_help=True)(show)
    group.command("requeue", no_args_is_help=True)(requeue_letters)
    group.command("drop", no_args_is_help=True)(drop_letters)
    app.add_typer(group, name="dead")


def list_letters(
    where: Where = None,
    every: Annotated[bool, typer.Option("--all", help="Also those about which was decided.")] = False,
    url: Url = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Lists the dead letters about which nobody has decided yet.

    \b
    jetgym dead list results/first
    jetgym dead list --url nats://127.0.0.1:4222 --all
    """  # noqa: D301 - the help keeps these lines as they are
    asked = _Asked(folder_of(where), url, namespace, [])
    found = run_async(_list(asked, every=every))
    if as_json:
        typer.echo(msgspec.json.encode({"letters": found}).decode())
        return
    if not found:
        console.print("no dead letters" if every else "no dead letters about which nobody has decided")
        return
    table = Table()
    for heading in ("id", "when (UTC)", "pool", "reason", "rollout", "message", *(["decided"] if every else [])):
        table.add_column(heading, overflow="fold")
    for each in found:
        message = each.message if len(each.message) <= _MESSAGE else f"{each.message[:_MESSAGE]}…"
        cells = each.id, f"{each.time:%m-%d %H:%M:%S}", each.pool, each.reason, each.rollout or "-", message
        table.add_row(*cells, *([each.decision or "-"] if every else []))
    console.print(table)


def show(named: Named, url: Url = None, namespace: Namespace = None, as_json: Json = False) -> None:
    """Shows a dead letter with the original event.

    \b
    jetgym dead show results/first 0-57
    jetgym dead show 0-57 --url nats://127.0.0.1:4222 --json
    """  # noqa: D301 - the help keeps these lines as they are
    asked = _asked(named, url, namespace, every=False)
    for each in run_async(_find(asked)):
        if as_json:
            typer.echo(msgspec.json.encode(each).decode())
        else:
            _show(each)


def requeue_letters(
    named: NamedOrAll = None,
    every: Annotated[bool, typer.Option("--all", help="All about which nobody has decided.")] = False,
    url: Url = None,
    namespace: Namespace = None,
) -> None:
    """Asks again for the rollouts that dead letters made fail.

    The end of a failed rollout stands; what is asked for is a new attempt of
    it, with a rollout ID of its own. Where workers serve the log they take it;
    of a run that is over, `jetgym run … --resume` does. Ends with 1 if a
    letter cannot be requeued.

    \b
    jetgym dead requeue results/first 0-57
    jetgym dead requeue --all --url nats://127.0.0.1:4222
    """  # noqa: D301 - the help keeps these lines as they are

    async def one(bus: Bus, dead: Letter) -> str:
        return f"rollout {dead.pool.rollout} is asked for again as {await requeue(bus, dead)}"

    _decide(_asked(named or [], url, namespace, every=every), one)


def drop_letters(
    named: NamedOrAll = None,
    every: Annotated[bool, typer.Option("--all", help="All about which nobody has decided.")] = False,
    url: Url = None,
    namespace: Namespace = None,
) -> None:
    """Records that nothing more is to be done about dead letters.

    They stay in the log; `list --all` shows them.

    \b
    jetgym dead drop results/first 0-57 0-58
    jetgym dead drop results/first --all
    """  # noqa: D301 - the help keeps these lines as they are

    async def one(bus: Bus, dead: Letter) -> str:
        await drop(bus, dead)
        return "dropped"

    _decide(_asked(named or [], url, namespace, every=every), one)


def _asked(named: list[str], url: str | None, namespace: str | None, *, every: bool) -> _Asked:
    ids = [name for name in named if _ID.match(name)]
    others = [name for name in named if not _ID.match(name)]
    if len(others) > 1:
        raise UsageError(f"{others[1]!r} is no ID of a dead letter, like 0-57: `jetgym dead list` shows them")
    if bool(ids) == every:
        raise UsageError("name dead letters by their IDs, which `jetgym dead list` shows, or --all, and not both")
    return _Asked(folder_of(Path(others[0]) if others else None), url, namespace, ids)


@asynccontextmanager
async def _open(asked: _Asked) -> AsyncIterator[Bus]:
    with working("reading the dead letters"):
        async with opened(asked.folder, asked.url, asked.namespace) as bus:
            yield bus


async def _list(asked: _Asked, *, every: bool) -> list[LetterDocument]:
    async with _open(asked) as bus:
        return [document(each, whole=False) async for each in letters(bus) if every or each.settled is None]


async def _find(asked: _Asked) -> list[LetterDocument]:
    async with _open(asked) as bus:
        return [document(each, whole=True) for each in await _named(bus, asked.ids)]


async def _named(bus: Bus, ids: list[str]) -> list[Letter]:
    """The letters with these IDs, each once."""
    found = {}
    for identifier in ids:
        if (one := await letter(bus, identifier)) is None:
            raise UsageError(f"there is no dead letter {identifier}: `jetgym dead list --all` shows those there are")
        found[one.id] = one
    return list(found.values())


def _decide(asked: _Asked, one: Callable[[Bus, Letter], Coroutine[Any, Any, str]]) -> None:
    async def decide() -> bool:
        async with _open(asked) as bus:
            found = await _named(bus, asked.ids) if asked.ids else [e async for e in letters(bus) if e.settled is None]
            refused, where = 0, words_for(asked.folder, asked.url, asked.namespace)
            for dead in found:
                try:
                    told = await unless_full(bus, one(bus, dead))
                except LogFull:
                    raise await no_room(bus, f"{dead.id}, and what comes after it, is undecided", where) from None
                except NotAgain as error:
                    refused += 1
                    told = f"left as it is: {error}"
                console.print(f"{dead.id}: {told}", markup=False, soft_wrap=True)
            left = f", {refused:,} left as {'it is' if refused == 1 else 'they are'}" if refused else ""
            console.print(f"{counted(len(found) - refused, 'dead letter')} decided{left}", markup=False)
            return refused > 0

    if run_async(decide()):
        raise typer.Exit(1)


def _show(found: LetterDocument) -> None:
    lines = {
        "dead letter": found.id,
        "when": f"{found.time:%Y-%m-%d %H:%M:%S} UTC",
        "pool": f"{found.pool} ({found.kind})",
        "rollout": found.rollout or "none",
        "reason": f"{found.reason}: {found.message}",
        "message": f"sequence {found.seq}, delivered {found.num_delivered} times, {found.subject}",
    }
    if found.decided is not None:
        new = f", as {found.new_rollout}" if found.new_rollout else ""
        lines["decided"] = f"{found.decision} at {found.decided:%Y-%m-%d %H:%M:%S} UTC{new}"
    for name, text in lines.items():
        console.print(f"{name:<12} {text}", markup=False, soft_wrap=True)
    if found.event is not None:
        console.print_json(json.dumps(json.loads(bytes(found.event))))
    else:
        console.print("its bytes are no event that this version reads; in base64:")
        console.print(found.raw_base64, markup=False, soft_wrap=True)
