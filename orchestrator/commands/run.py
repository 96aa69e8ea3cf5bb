"""`jetgym run`: collects the rollouts of a run, from its config and tasks to its result files.

Checks everything before anything starts: config, components, references, tasks. Then it starts a deployment, or
connects to one, and hands over to `collect`.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bus import BusError, LogConfig
from bus.errors import LogFull, LogMismatch, ServerUnfit
from bus.room import LogRoom
from bus.run_folder import MATERIALIZED, RESULTS
from orchestrator.changes import replace_config
from orchestrator.collect import collect, rollout_id_of
from orchestrator.commands.common import OptionalConfigs, Steps, Url, console, resolve, run_async
from orchestrator.commands.failures import cause_of, is_of_the_disk
from orchestrator.commands.resuming import check_results, mend_inputs, resumed_run
from orchestrator.config import Config, redact
from orchestrator.describing import check, roots
from orchestrator.errors import LaunchError, UsageError
from orchestrator.full_log import no_room
from orchestrator.hints import typed
from orchestrator.launch import Deployment, Look, Report, new_id
from orchestrator.progress import CollectProgress
from orchestrator.report import RunReport
from orchestrator.results import Outcome
from orchestrator.run_files import RunFiles, write_whole
from orchestrator.tasks import Materialized, MaterializedTask, input_line, materialize


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("run", no_args_is_help=True)(run)


def run(
    *,
    configs: OptionalConfigs = None,
    input_file: Annotated[
        Path | None,
        typer.Option("--input", help="A JSONL file of tasks, instead of the agents' datasets.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="Directory of the results; by default results/<run>.", show_default=False),
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", help="Only this agent's datasets, or who gets the --input.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", help="Only the first N tasks of each file.")] = None,
    repeats: Annotated[int | None, typer.Option("--repeats", help="Rollouts of each task.")] = None,
    concurrency: Annotated[int | None, typer.Option("--concurrency", help="Unfinished rollouts at a time.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --output.")] = False,
    skip_bad_lines: Annotated[
        bool, typer.Option("--skip-bad-lines", help="Leave out lines that are no tasks.")
    ] = False,
    url: Url = None,
) -> None:
    """Collects rollouts.

    \b
    jetgym run configs/demo.yaml
    jetgym run configs/demo.yaml --input tasks.jsonl --repeats 8
    jetgym run configs/demo.yaml ++policy.models.local_llm.seed=1
    jetgym run configs/demo.yaml --output results/first --resume
    jetgym run --url nats://127.0.0.1:4222 --input tasks.jsonl

    Ends with 0 when all rollouts have ended and at least one has a reward, 1
    when none has one, 2 when the run could not begin or go on, 130 when it was
    stopped.
    """  # noqa: D301 - the help keeps these lines as they are
    flags = {
        "input": str(input_file) if input_file else None,
        "output": str(output) if output else None,
        "agent": agent,
        "limit": limit,
        "repeats": repeats,
        "concurrency": concurrency,
        "skip_bad_lines": skip_bad_lines or None,
        "server": {"url": url} if url else None,
    }
    config = resolve(configs or [], flags)
    folder, run_id = _place(config, resume=resume)
    try:
        run_async(_run(config, folder, run_id, url, resume=resume))
    except KeyboardInterrupt:
        if not _tell_how_to_go_on(folder):
            console.print("\nstopped before the first rollout was asked for")
        raise typer.Exit(130) from None
    except (LogMismatch, ServerUnfit):
        raise  # the same command would be refused again
    except LogFull:
        if not resume:
            _tell_how_to_go_on(folder)
        raise
    except Exception as error:
        cause = cause_of(error)
        if isinstance(cause, LaunchError | BusError) or is_of_the_disk(cause):
            _tell_how_to_go_on(folder)
        raise


async def _run(config: Config, folder: Path, run_id: str, url: str | None, *, resume: bool) -> None:
    async with AsyncExitStack() as stack:
        report = stack.enter_context(Steps())
        checked = await check(config, report) if config.instances else None
        if checked is None:  # what is deployed is in the log
            if url is None:
                raise UsageError("name a config, or the --url of a running deployment")
            deployment = await stack.enter_async_context(Deployment.connect(url, config, report))
        report("reading the tasks")
        inputs = materialize(config, checked.descriptions if checked else deployment.descriptions)
        files = stack.enter_context(RunFiles(folder))

        def lines() -> Iterator[bytes]:
            return (input_line(task, rollout_id_of(run_id, task)) for task in inputs.tasks)

        if resume:
            await mend_inputs(config, folder, run_id, lines)
        look: Look | None = partial(check_results, run_id, folder) if resume else None
        if checked is not None:
            deployment = await stack.enter_async_context(
                Deployment.connect(url, config, report, checked.descriptions)
                if url is not None
                else Deployment.start(checked, files, report, run_id, look)
            )
        if url is not None:
            await _look_and_wait(deployment, look, {task.agent for task in inputs.tasks}, report)
        if not resume:
            write_whole(folder / MATERIALIZED, lines())
        where = [str(folder)] if url is None else _log(config.redactor.text(url), deployment.bus.config)
        await _begin(deployment, config, inputs, run_id=run_id, folder=folder, where=where)
        report.pause()
        results = RunReport(run_id, deployment.descriptions, skipped_lines=inputs.skipped)
        try:
            await _collect(deployment, config, inputs.tasks, run_id=run_id, folder=folder, results=results, where=where)
        finally:
            results.write(folder)
        if checked is not None:
            await results.ask_components(folder, config.instances, checked.pythons, roots(config))
            results.write(folder)
    results.show(console, folder, [] if url is None else where)
    if not results.completed:
        raise typer.Exit(1)


async def _look_and_wait(deployment: Deployment, look: Look | None, agents: set[str], report: Report) -> None:
    """Until workers that others keep running serve the run; `look` comes first, since they may be there already."""
    if look is not None:
        await look(deployment)
    await deployment.until_served(agents, report)


async def _begin(
    deployment: Deployment, config: Config, inputs: Materialized, *, run_id: str, folder: Path, where: Sequence[str]
) -> None:
    """Says in the log and in the run's directory with what config the run begins, or goes on.

    In the log first: where the directory has a config, the log that is the run's holds its beginning.
    """
    try:
        await deployment.record_run(run_id, folder / MATERIALIZED, inputs)
    except LogFull:
        raise await no_room(deployment.bus, "the run cannot begin", where) from None
    for change in replace_config(folder, config.to_yaml(deployment.descriptions)):
        console.print(f"the config has changed since the run began: {change}", markup=False, soft_wrap=True)


async def _collect(
    deployment: Deployment,
    config: Config,
    tasks: Sequence[MaterializedTask],
    *,
    run_id: str,
    folder: Path,
    results: RunReport,
    where: Sequence[str],
) -> None:
    concurrency = config.settings.concurrency
    room = LogRoom(deployment.bus)
    async with CollectProgress(len(tasks), console, room.full, where, concurrency=concurrency) as progress:

        def hear(ended: Outcome) -> None:
            results.add(ended)
            progress.add(ended)

        results.start()
        await deployment.while_alive(
            collect(
                deployment.bus,
                tasks,
                run_id=run_id,
                output=folder,
                concurrency=concurrency,
                retry=config.settings.retry,
                on_outcome=hear,
            )
        )


def _log(url: str, log: LogConfig) -> list[str]:
    """The options by which other commands find the log of a deployment elsewhere."""
    return ["--url", url, *([] if log.namespace == LogConfig().namespace else ["--namespace", log.namespace])]


def _tell_how_to_go_on(folder: Path) -> bool:
    """Whether there is something to go on with."""
    if not (folder / MATERIALIZED).exists():
        return False
    console.print(f"\nstopped; what is finished is in {folder}. To go on:", markup=False, soft_wrap=True)
    console.print(f"  {_again(folder)}", markup=False, soft_wrap=True)
    return True


def _again(folder: Path) -> str:
    """The command that goes on with this run."""
    words = [word for word in sys.argv[1:] if word != "--resume"]
    named = any(word == "--output" or word.startswith("--output=") for word in words)
    return redact(typed("jetgym", *words, *([] if named else ["--output", str(folder)]), "--resume"))


def _place(config: Config, *, resume: bool) -> tuple[Path, str]:
    """The run's directory and ID."""
    named = config.settings.output
    if resume:
        if named is None:
            raise UsageError("--resume goes on with a run: name its directory with --output")
        return Path(named), run_async(resumed_run(config, Path(named)))
    run_id = new_id("r")
    folder = Path(named or RESULTS / run_id)
    if (folder / MATERIALIZED).exists():
        raise UsageError(f"{folder} holds a run already: go on with it with --resume, or name another --output")
    return folder, run_id
