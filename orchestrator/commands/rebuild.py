"""`jetgym rebuild`: writes a run's result files anew, from the log alone."""

from pathlib import Path
from typing import Annotated

import typer

from bus import Bus
from bus.opening import LogPlace
from bus.run_folder import MATERIALIZED, METRICS
from orchestrator.asked import inputs_in_log
from orchestrator.collect import outcomes_in_log
from orchestrator.commands.common import Steps, console, run_async
from orchestrator.commands.logs import Namespace, Url, one_run, open_place, place_of, runs_of, unknown_run
from orchestrator.errors import UsageError
from orchestrator.launch import resolved_deployment
from orchestrator.report import RunReport
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
    namespace: Namespace = None,
) -> None:
    """Writes rollouts.jsonl and failures.jsonl anew from the log, equal line for line.

    Where there is no metrics.json it is written too, without what components
    say of their own rollouts: of an interrupted run, or of forks. Where there
    is no materialized_inputs.jsonl, which --resume needs, it is written if the
    log has all tasks.

    The log is the one in the directory, the one that its run used elsewhere,
    or the one at --url.

    \b
    jetgym rebuild results/first
    jetgym rebuild results/again --url nats://127.0.0.1:4222 --run r1129-1612-x7k2
    """  # noqa: D301 - the help keeps these lines as they are
    count = run_async(_rebuild(directory, run, place_of(directory, url), namespace))
    console.print(f"{count} rollouts from the log are in {directory}", markup=False)


async def _rebuild(directory: Path, run: str | None, place: LogPlace, namespace: str | None) -> int:
    with Steps() as report, RunFiles(directory):
        report("opening the log")
        async with open_place(place, namespace, directory) as bus:
            run = await one_run(bus, run, directory)
            if run not in await runs_of(bus):
                raise await unknown_run(bus, run)
            report(f"reading the log of {run}")
            deployed = await resolved_deployment(bus)
            summary = RunReport(run, deployed.descriptions if deployed is not None else {})
            count = 0
            with ResultFiles(directory) as files:
                async for ended in outcomes_in_log(bus, run):
                    files.add(ended)
                    summary.add_recorded(ended)
                    count += 1
            if not (directory / METRICS).exists():
                summary.write(directory)
            if not (directory / MATERIALIZED).exists():
                await _write_inputs(bus, run, directory / MATERIALIZED)
            return count


async def _write_inputs(bus: Bus, run: str, path: Path) -> None:
    try:
        content = await inputs_in_log(bus, run)
    except UsageError as error:
        console.print(f"{path.name} is not written: {error}", markup=False, soft_wrap=True)
        return
    partial = path.with_suffix(".partial")
    partial.write_bytes(content)
    partial.rename(path)
