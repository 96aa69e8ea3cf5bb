"""`jetgym rebuild`: writes a run's result files anew, from the log alone."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import typer

from bus import Bus, EmbeddedServer, LogConfig
from bus.run_folder import CONFIG, LOG
from orchestrator.collect import outcomes_in_log
from orchestrator.commands.common import Steps, Url, console, run_async
from orchestrator.compose import read
from orchestrator.config import Config, load_config
from orchestrator.errors import UsageError, nearest
from orchestrator.launch import Deployment
from orchestrator.results import ResultFiles
from orchestrator.run_files import RunFiles


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("rebuild", no_args_is_help=True)(rebuild)


def rebuild(
    directory: Annotated[Path, typer.Argument(help="The run's directory; the files are written into it.")],
    run: Annotated[
        str | None, typer.Option("--run", help="ID of the run, where the log holds several.", show_default=False)
    ] = None,
    url: Url = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", help="Namespace of the deployment at --url.", show_default=False)
    ] = None,
) -> None:
    """Writes rollouts.jsonl and failures.jsonl anew from the log, equal line for line.

    The log is the one in the directory, or the one at --url.

    \b
    jetgym rebuild results/first
    jetgym rebuild results/again --url nats://127.0.0.1:4222 --run r1129-1612-x7k2
    """  # noqa: D301 - the help keeps these lines as they are
    if url is None and not (directory / LOG).is_dir():
        raise UsageError(f"{directory} has no log/: name the server that has it with --url")
    written = read(directory / CONFIG).get("log", {}) if (directory / CONFIG).is_file() else {}
    config = load_config([], [f"log.namespace={namespace or written.get('namespace', 'jetgym')}"])
    count = run_async(_rebuild(directory, run, url, config))
    console.print(f"{count} rollouts from the log are in {directory}", markup=False)


async def _rebuild(directory: Path, run: str | None, url: str | None, config: Config) -> int:
    async with AsyncExitStack() as stack:
        report = stack.enter_context(Steps())
        stack.enter_context(RunFiles(directory))
        if url is None:
            report("starting the server on the run's log")
            server = await EmbeddedServer.start(directory / LOG, LogConfig())
            stack.push_async_callback(server.stop)
            url = server.url
        deployment = await stack.enter_async_context(Deployment.connect(url, config))
        run = await _one_run(deployment.bus, run)
        report(f"reading the log of {run}")
        count = 0
        with ResultFiles(directory) as files:
            async for ended in outcomes_in_log(deployment.bus, run):
                files.add(ended)
                count += 1
        return count


async def _one_run(bus: Bus, asked: str | None) -> str:
    begun = bus.subjects.deployment("run", "*")
    runs = [recorded.subject.rpartition(".")[2] async for recorded in bus.scan(begun)]
    if asked is not None and asked not in runs:
        raise UsageError(f"the log has no run {asked!r}; {nearest(asked, runs)}")
    if asked is None and len(runs) != 1:
        raise UsageError(f"the log holds {len(runs)} runs, name one with --run: {', '.join(runs)}")
    return asked or runs[0]
