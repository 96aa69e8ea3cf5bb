"""`replay verify`: runs agents' code again on what is recorded, and says where it departs."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from replay.apart import DEADLINE_S
from replay.bulk import Summary
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
    errors,
    named,
    resolved,
    run_async,
    use_own_components,
    write_json,
)
from replay.errors import ReplayError
from replay.facts import facts_of
from replay.findings import draw_summary, draw_verdict
from replay.opening import Where, open_source
from replay.several import WORTH, processes, reopening, verify_in
from replay.source import Source, load
from replay.verdict_files import JsonLines, Junit
from replay.verify import Resolved, Verdict, Verifier


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("verify", no_args_is_help=True)(verify)


def verify(
    rollouts: Ids = None,
    *,
    run: Run = None,
    config: Config = None,
    loose: Annotated[
        bool,
        typer.Option(
            "--loose",
            help="Compare which calls are made, and the reward or the kind of the error; not what is asked or said.",
        ),
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, help="Processes; by default one a processor for large runs.", show_default=False),
    ] = None,
    deadline: Deadline = DEADLINE_S,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML, for a CI.", show_default=False)
    ] = None,
    jsonl: Annotated[
        Path | None, typer.Option("--jsonl", metavar="FILE", help="Write each verdict as JSON.", show_default=False)
    ] = None,
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

    Code that spins or ends its process costs its own rollout the verdict.

    Ends with 0 if all are the same, 1 if one differs, 2 if one could not be run.

    \b
    replay verify last
    replay verify r1129-1612-x7k2-00003-01 r1129-1612-x7k2-00003-02
    replay verify --run last
    replay verify --run last --jsonl verdicts.jsonl --junit verify.xml
    replay verify --run last --loose
    replay verify --file tests/golden/solver.jsonl
    """  # noqa: D301 - the help keeps these lines as they are
    place = named(rollouts, run, url, namespace, file)
    override = resolved(config)
    roots = use_own_components()
    summary = Summary()
    asked = _Asked(override, roots, jobs, loose, deadline)
    with ExitStack() as stack:
        files: list[JsonLines | Junit] = []
        if junit is not None:
            files.append(stack.enter_context(Junit(junit)))
        if jsonl is not None:
            files.append(stack.enter_context(JsonLines(jsonl)))

        def hear(verdict: Verdict) -> None:
            summary.add(verdict)
            for written in files:
                written.add(verdict)
            if json:
                write_json(verdict)
            elif rollouts:
                draw_verdict(verdict, console)

        for source, names in by_source(place, rollouts or []):
            run_async(_verify(source, names, asked, hear))
    if not json and not rollouts:
        draw_summary(summary, console)
    raise typer.Exit(summary.exit_code)


class _Asked(NamedTuple):
    override: Resolved | None
    roots: list[str]
    jobs: int | None
    loose: bool
    deadline_s: float


async def _verify(place: Where, names: list[str], asked: _Asked, hear: Callable[[Verdict], None]) -> None:
    async with open_source(place) as source:
        facts = await facts_of(source)
        ids = await chosen(source, place, names, facts)
        with _progress(len(ids), quiet=bool(names)) as advance:
            async for verdict in _verdicts(source, ids, asked):
                hear(
                    verdict
                    if verdict.implementation
                    else await _whose(verdict, source, Verifier(facts, asked.override))
                )
                advance()


async def _whose(verdict: Verdict, source: Source, verifier: Verifier) -> Verdict:
    """What could not run, with what is recorded of it: code that ended its process has not told."""
    with suppress(ReplayError):
        trajectory = await load(source, verdict.rollout_id)
        agent = verdict.agent or trajectory.request.agent
        verdict = msgspec.structs.replace(
            verdict, agent=agent, calls=len(trajectory.calls), ended=trajectory.state, reward=trajectory.reward
        )
        run = next(run for run in trajectory.executions() if run.agent == agent)
        return msgspec.structs.replace(verdict, implementation=verifier.code_of(trajectory, run).implementation)
    return verdict


def _verdicts(source: Source, ids: list[str], asked: _Asked) -> AsyncIterator[Verdict]:
    jobs = asked.jobs or (processes() if len(ids) >= WORTH else 1)
    loose, deadline_s = asked.loose, asked.deadline_s
    return verify_in(jobs, reopening(source), ids, asked.override, asked.roots, loose=loose, deadline_s=deadline_s)


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
