"""`jetgym rebuild`: writes a run's result files anew, from the log alone."""

from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import typer

from bus import Bus
from bus.opening import LogPlace
from bus.reboot import rebooted
from bus.run_folder import FAILURES, LOG, MATERIALIZED, METRICS, ROLLOUTS
from orchestrator.asked import beginning, digest_of, inputs_in_log
from orchestrator.collect import outcomes_in_log
from orchestrator.commands.common import Steps, console, run_async
from orchestrator.commands.logs import Namespace, Url, one_run, open_place, place_of, runs_of, unknown_run
from orchestrator.commands.resuming import keep_aside
from orchestrator.errors import UsageError
from orchestrator.kept import by_outcomes, kept_of
from orchestrator.launch import resolved_deployment
from orchestrator.report import RunReport, has_metrics
from orchestrator.results import ResultFiles
from orchestrator.run_files import RunFiles, write_whole


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

    Where the log has several partitions, the lines of one stand before those
    of the next.

    Where metrics.json is not there or damaged, it is written too, without what
    components say of their own rollouts: of an interrupted run, or of forks.
    Where materialized_inputs.jsonl is not what the run began with, it is
    written if the log has all tasks. What was written anew is told. A file
    with results that are not in the log is kept beside, as NAME.before; after
    another power cut as NAME.before.2.

    The log is the one in the directory, the one that its run used elsewhere,
    or the one at --url.

    \b
    jetgym rebuild results/first
    jetgym rebuild results/again --url nats://127.0.0.1:4222 --run r1129-1612-x7k2
    """  # noqa: D301 - the help keeps these lines as they are
    count = run_async(_rebuild(directory, run, place_of(directory, url), namespace))
    console.print(f"{count} rollouts from the log are in {directory}", markup=False)


async def _rebuild(directory: Path, run: str | None, place: LogPlace, namespace: str | None) -> int:
    before = _contents(directory)
    with Steps() as report, RunFiles(directory):
        report("opening the log")
        async with open_place(place, namespace, directory) as bus:
            run = await one_run(bus, run, directory)
            if run not in await runs_of(bus):
                raise await unknown_run(bus, run)
            for kept in await kept_of(bus, run, directory, by_outcomes if rebooted(directory / LOG) else None):
                keep_aside(kept, "`jetgym run … --resume` runs these rollouts again")
            report(f"reading the log of {run}")
            deployed = await resolved_deployment(bus)
            summary = RunReport(run, deployed.descriptions if deployed is not None else {})
            count = 0
            with ResultFiles(directory) as files:
                async for ended in outcomes_in_log(bus, run):
                    files.add(ended)
                    summary.add_recorded(ended)
                    count += 1
            if not has_metrics(directory, run):
                summary.write(directory)
            await _mend_inputs(bus, run, directory / MATERIALIZED)
    for name, now in _contents(directory).items():
        if now != (was := before[name]):
            told = "was not there" if was is None else "was not what the log says"
            console.print(f"{name} {told}: it is written anew", markup=False)
    return count


def _contents(directory: Path) -> dict[str, str | int | None]:
    """Of each file what two equal ones have in common; None where there is none."""
    lines = {name: lines_of(directory / name) for name in (ROLLOUTS, FAILURES)}
    return lines | {name: digest_of(directory / name) for name in (METRICS, MATERIALIZED)}


def lines_of(path: Path) -> int | None:
    """A number that stands for the lines of a file in whatever order; None where there is none."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        return sum(int.from_bytes(sha256(line).digest(), "big") for line in file)
    return None


async def _mend_inputs(bus: Bus, run: str, path: Path) -> None:
    if (started := await beginning(bus, run)) is None:
        if digest_of(path) is None:
            console.print(f"{path.name} is not written: {run} is a trainer's", markup=False, soft_wrap=True)
        return
    if digest_of(path) == started.inputs_sha256:
        return
    try:
        write_whole(path, await inputs_in_log(bus, started))
    except UsageError as error:
        console.print(f"{path.name} is not written: {error}", markup=False, soft_wrap=True)
