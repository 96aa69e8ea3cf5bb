"""`replay export`: rollouts in the forms that others read."""

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, BinaryIO, Final, Literal

import msgspec
import typer

from replay.commands.common import (
    Files,
    Json,
    Namespace,
    Run,
    Url,
    by_source,
    errors,
    run_async,
    where,
    write_json,
)
from replay.errors import CannotExport, Misused, NoSource, UnknownName
from replay.exports.chrome import trace_events
from replay.exports.conversation import chat_line, items_line
from replay.exports.golden import Scrubber, golden_lines, secrets_here
from replay.exports.lines import event_lines
from replay.exports.otlp import traces
from replay.exports.page import html_page
from replay.exports.samples import sample_lines
from replay.facts import Facts, facts_of
from replay.names import find_rollout
from replay.opening import Where, open_source, run_in
from replay.page import counted
from replay.source import Source, load, with_captures
from replay.trajectory import Trajectory

Format = Literal["events", "chat", "items", "samples", "golden", "otlp", "chrome", "html"]
FORMATS: Final = ("events", "chat", "items", "samples", "golden", "otlp", "chrome", "html")
_LINES: Final = ("chat", "items", "samples", "otlp")
"""Where each line stands for itself, whichever log it is from."""


class Exported(msgspec.Struct, kw_only=True):
    """What was written, as `--json` tells it."""

    format: str
    rollouts: int = 0
    left_out: dict[str, str] = {}
    """Rollouts that the format cannot say, and why."""
    scrubbed: int = 0
    """Secrets that were replaced, of a golden file."""
    output: str


class _Wish(msgspec.Struct, frozen=True, kw_only=True):
    format: Format
    content: bool
    secrets: tuple[str, ...]


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("export", no_args_is_help=True)(export)


def export(
    rollouts: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID…", help="Rollouts, by ID, its beginning, or `last`.", show_default=False),
    ] = None,
    *,
    format: Annotated[  # noqa: A002 - the option's name
        str, typer.Option("--format", metavar="|".join(FORMATS), help="What to write; see above.")
    ] = "events",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file; standard output by default.", show_default=False)
    ] = None,
    content: Annotated[bool, typer.Option("--content", help="otlp: with what was said.")] = False,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            "--secret", help="golden: a value to leave out, beside those in env.yaml; again.", show_default=False
        ),
    ] = None,
    run: Run = None,
    url: Url = None,
    namespace: Namespace = "jetgym",
    file: Files = None,
    json: Json = False,
) -> None:
    """Writes rollouts in the form that another program reads; without IDs all of a run.

    \b
    events   every stored byte, one event a line, with what the events refer to:
             `--file` of every command reads it, `replay import` takes it back
    golden   a test's history: secrets scrubbed, nothing beside the file needed
    items    conversations as Responses items, one rollout a line
    chat     conversations as Chat Completions messages, one rollout a line
    otlp     OpenTelemetry spans, GenAI conventions; a rollout a line (OTLP JSON)
    chrome   one trace for ui.perfetto.dev or chrome://tracing
    html     one rollout as one page, without scripts, for anybody
    samples  token IDs for a trainer, one sample a line; packed, or in binary
             files: `jetgym export samples`

    With --output FILE, --json says what was written. Ends with 0, or with 2 if
    a rollout could not be written; the others are.

    \b
    replay export last -o rollout.jsonl
    replay export --run last --format chat -o chats.jsonl
    replay export last --format golden -o tests/golden/solver.jsonl
    replay export --run last --format otlp --content -o spans.jsonl
    replay export last --format html -o rollout.html --json
    """  # noqa: D301 - the help keeps these lines as they are
    place = where(run, url, namespace, file)
    if format not in FORMATS:
        raise Misused(f"there is no format {format!r}; there are: {', '.join(FORMATS)}")
    if secret and format != "golden":
        raise Misused(f"--secret is for --format golden: {format} is written with all that was said")
    if content and format != "otlp":
        raise Misused("--content is for --format otlp: other forms have what was said")
    if not rollouts and run is None and not file:
        raise Misused("name rollouts, or a run with --run (`--run last` is the newest)")
    if json and output is None:
        raise Misused("--json tells what was written, on standard output: name a file with --output")
    if output is not None and output.exists():
        raise Misused(f"{output} is there already: name another file")
    wish = _Wish(format=format, content=content, secrets=tuple(secret or ()))  # type: ignore[arg-type]  # in FORMATS
    told = run_async(_export(place, rollouts or [], wish, output))
    for rollout, why in told.left_out.items():
        errors.print(f"{rollout} is left out: {why}", style="yellow", markup=False, soft_wrap=True)
    if json:
        write_json(told)
    elif output is not None:
        errors.print(f"{output}: {counted(told.rollouts, 'rollout')} as {format}", markup=False, soft_wrap=True)
    raise typer.Exit(2 if told.left_out else 0)


async def _export(place: Where, names: list[str], wish: _Wish, output: Path | None) -> Exported:
    told = Exported(format=wish.format, output=str(output or "-"))
    logs = by_source(place, names)
    if len(logs) > 1 and wish.format not in _LINES:
        where = ", ".join(str(log.run) for log, _ in logs)
        raise Misused(f"these rollouts are in several logs, {where}: name those of one for {wish.format}")
    with _opened(output) as write:
        for log, inside in logs:
            async with open_source(log) as source:
                ids, runs, started = await _chosen(source, inside, await run_in(source, log))
                if wish.format == "html" and len(ids) > 1:
                    raise Misused(f"a page tells one rollout, and {len(ids):,} are meant: name one")
                exporter = _Exporter(source, await facts_of(source), wish)
                async for chunk in exporter.chunks(ids, runs, started):
                    write(chunk)
            told.rollouts += len(ids) - len(exporter.left_out)
            told.left_out |= exporter.left_out
            told.scrubbed += exporter.scrubber.found
    return told


class _Request(msgspec.Struct):
    run_id: str = ""


async def _chosen(source: Source, names: list[str], run: str | None) -> tuple[list[str], frozenset[str], datetime]:
    """The rollouts that are meant, in the order of `list`, their runs, and when the first of them was asked for.

    Raises `UnknownName`.
    """
    wanted = {await find_rollout(source, name, run) for name in names}
    found: list[str] = []
    open_ones: dict[str, datetime] = {}
    started: datetime | None = None
    runs: set[str] = set()
    async for recorded in source.outline():
        rollout = recorded.event.rolloutid
        if recorded.event.type == "rollout.requested":
            run_id = msgspec.json.decode(await source.data(recorded.event), type=_Request).run_id
            if rollout in wanted if wanted else run in (None, run_id):
                open_ones[rollout] = recorded.event.time
                started = min(started or recorded.event.time, recorded.event.time)
                runs.add(run_id)
        elif open_ones.pop(rollout, None) is not None:
            found.append(rollout)
    found += sorted(open_ones, key=open_ones.__getitem__)
    if started is None:
        raise UnknownName(f"there is no rollout in {source.name}")
    return found, frozenset(runs), started


class _Exporter:
    def __init__(self, source: Source, facts: Facts, wish: _Wish) -> None:
        self._source, self._facts, self._wish = source, facts, wish
        self.left_out: dict[str, str] = {}
        self._samples = wish.format == "samples"
        secrets = [*secrets_here(), *wish.secrets] if wish.format == "golden" else []
        self.scrubber = Scrubber(secrets, Path.cwd())

    async def chunks(self, ids: list[str], runs: frozenset[str], started: datetime) -> AsyncIterator[bytes]:
        """What is to be written, in parts."""
        if self._wish.format in ("events", "golden"):
            events = self._wish.format == "events"
            lines = event_lines(self._source, ids, runs) if events else golden_lines(self._source, ids, self.scrubber)
            async for line in lines:
                yield line + b"\n"
        elif self._wish.format == "chrome":
            yield b'{"displayTimeUnit":"ms","otherData":{"start":"%s"},"traceEvents":[\n' % started.isoformat().encode()
            first = True
            async for number, trajectory in self._loaded(ids):
                for event in trace_events(trajectory, self._facts, number, started):
                    yield (b"" if first else b",\n") + msgspec.json.encode(event)
                    first = False
            yield b"\n]}\n"
        else:
            async for _, trajectory in self._loaded(ids):
                try:
                    for part in self._told(trajectory):
                        yield part
                except CannotExport as error:
                    self.left_out[trajectory.rollout_id] = str(error)

    async def _loaded(self, ids: list[str]) -> AsyncIterator[tuple[int, Trajectory]]:
        for number, rollout in enumerate(ids, start=1):
            trajectory = await load(self._source, rollout)
            yield number, await with_captures(self._source, trajectory) if self._samples else trajectory

    def _told(self, trajectory: Trajectory) -> Iterator[bytes]:
        match self._wish.format:
            case "chat":
                yield msgspec.json.encode(chat_line(trajectory)) + b"\n"
            case "items":
                yield msgspec.json.encode(items_line(trajectory)) + b"\n"
            case "samples":
                yield from sample_lines(trajectory)
            case "otlp":
                yield from traces(trajectory, content=self._wish.content)
                yield b"\n"
            case _:
                for part in html_page(trajectory, self._facts):
                    yield part.encode("utf-8", "replace")


@contextmanager
def _opened(output: Path | None) -> Iterator[Callable[[bytes], object]]:
    """Where to write; a file has its name once it is whole."""
    if output is None:
        yield sys.stdout.buffer.write
        sys.stdout.buffer.flush()
        return
    part = output.with_name(f"{output.name}.part")
    try:
        file: BinaryIO
        with part.open("wb") as file:
            yield file.write
        part.replace(output)
    except OSError as error:
        raise NoSource(f"{output} cannot be written: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)
