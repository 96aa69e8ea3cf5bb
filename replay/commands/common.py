"""What do the commands of replay share?

The options that say what to read, the consoles, JSON output, and how a command runs its coroutine.
"""

import asyncio
import signal
import sys
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from rich.console import Console

from components.loading import INSTALLED, add_roots
from contracts.errors import InvalidName
from contracts.ids import check_name
from replay.errors import Misused, UnknownName
from replay.facts import Facts
from replay.names import LAST, find_rollout
from replay.opening import Where, choose, run_in
from replay.places import read_config
from replay.rows import rows
from replay.source import Source
from replay.verify import Resolved

T = TypeVar("T")

Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID…", help="Rollouts, by ID, its beginning, or `last`.", show_default=False),
]
Run = Annotated[
    str | None,
    typer.Option(
        "--run", metavar="RUN", help="A run's ID, the beginning of it, its directory, or `last`.", show_default=False
    ),
]
Url = Annotated[
    str | None,
    typer.Option("--url", metavar="nats://HOST:PORT", help="Read the log of this server.", show_default=False),
]
Namespace = Annotated[str, typer.Option("--namespace", help="Namespace of the deployment at --url.")]
Files = Annotated[
    list[Path] | None,
    typer.Option(
        "--file", metavar="FILE", help="Read exported events (JSONL); may be given again.", show_default=False
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="A resolved config (a run's config.yaml, or `jetgym validate CONFIG --yaml`) to use instead of the "
        "recorded one.",
        show_default=False,
    ),
]
Deadline = Annotated[
    float,
    typer.Option(
        "--deadline",
        min=0.1,
        metavar="SECONDS",
        help="Code that runs (verifiers and tools: or waits) longer than this for one rollout is given up.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON on standard output, for programs.")]

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)


def where(run: str | None, url: str | None, namespace: str, files: list[Path] | None) -> Where:
    """What the options say; raises `Misused` where they contradict each other."""
    if url is not None and files:
        raise Misused("give either --url or --file")
    try:
        check_name(namespace, "namespace")
    except InvalidName as error:
        raise Misused(str(error)) from error
    return Where(run=run, url=url, namespace=namespace, files=tuple(files or ()))


def named(
    rollouts: list[str] | None, run: str | None, url: str | None, namespace: str, files: list[Path] | None
) -> Where:
    """`where`, for a command that must be told which rollouts; raises `Misused` where it is not."""
    place = where(run, url, namespace, files)
    if not rollouts and run is None and not files:
        raise Misused("name rollouts, or a run with --run (`--run last` is the newest)")
    return place


def resolved(config: Path | None) -> Resolved | None:
    """The config to use instead of the recorded one, if there is one; raises `NoSource`."""
    return read_config(config) if config is not None else None


async def chosen(source: Source, place: Where, names: list[str], facts: Facts, outcome: str = "") -> list[str]:
    """The IDs of the rollouts that are named, or of all of the run, where none is; raises `UnknownName`."""
    run = await run_in(source, place)
    if names:
        return [await find_rollout(source, name, run) for name in names]
    found = [row.rollout_id async for row in rows(source, facts, run) if outcome in {"", row.outcome}]
    if not found:
        what = f"{outcome} rollout" if outcome else "rollout"
        raise UnknownName(f"there is no {what} in {source.name}")
    return found


def by_source(place: Where, names: list[str]) -> list[tuple[Where, list[str]]]:
    """The names, by the run's directory that each is in: a run's server is started once."""
    if not names or not place.is_local:
        return [(place, names)]
    found: dict[str, list[str]] = {}
    for name in names:
        run = choose(place, name)
        found.setdefault(run.run_id if run.noted and name == LAST else str(run.path), []).append(name)
    return [(msgspec.structs.replace(place, run=run), inside) for run, inside in found.items()]


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Runs a command's coroutine. Ctrl-C or SIGTERM cancels it, what it has started is stopped; it ends with 130."""
    try:
        return asyncio.run(_until_terminated(work))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


async def _until_terminated(work: Coroutine[Any, Any, T]) -> T:
    task = asyncio.current_task()
    assert task is not None
    terminated = False

    def terminate() -> None:
        nonlocal terminated
        terminated = True
        task.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
    try:
        return await work
    except asyncio.CancelledError:
        if terminated:
            raise KeyboardInterrupt from None
        raise


def write_json(value: object) -> None:
    """One line of JSON on standard output."""
    write_line(msgspec.json.encode(value))


def write_parts(parts: Iterable[bytes]) -> None:
    """One line of JSON on standard output, out of its parts."""
    for part in parts:
        sys.stdout.buffer.write(part)
    write_line(b"")


def write_line(line: bytes) -> None:
    """One line on standard output, byte for byte."""
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def use_own_components() -> list[str]:
    """Makes the components of the working directory importable, as `jetgym` does; returns the roots."""
    here = Path.cwd().resolve()
    roots = [] if here == INSTALLED.resolve() else [str(here)]
    add_roots(roots)
    return roots
