"""`jetgym status`: what a deployment is doing right now."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from bus.overview import LogState, overview
from bus.run_folder import RESULTS, live
from orchestrator.commands.common import console, run_async
from orchestrator.config import load_config
from orchestrator.errors import UsageError
from orchestrator.launch import Deployment


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("status")(status)


def status(
    directory: Annotated[
        Path | None,
        typer.Argument(help="Directory of a run, or of `jetgym up`.", show_default=False),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="nats://HOST:PORT", help="Server of the deployment.", show_default=False),
    ] = None,
    namespace: Annotated[str, typer.Option("--namespace", help="Namespace of the deployment.")] = "jetgym",
) -> None:
    """Shows rollouts, queues and workers of a deployment. Without arguments, of what is live below results/.

    \b
    jetgym status
    jetgym status results/first
    jetgym status --url nats://127.0.0.1:4222
    """  # noqa: D301 - the help keeps these lines as they are
    if url is not None:
        _show(url, namespace, {})
        return
    folders = [directory] if directory is not None else sorted(RESULTS.glob("*/"))
    found = [(folder, facts) for folder in folders if (facts := live(folder))]
    if not found:
        where = directory or f"{RESULTS}/"
        raise UsageError(f"nothing is live in {where}; for a deployment elsewhere: jetgym status --url nats://…")
    for folder, facts in found:
        console.print(str(folder), style="bold", markup=False)
        _show(str(facts["url"]), str(facts["namespace"]), facts)


def _show(url: str, namespace: str, facts: dict[str, Any]) -> None:
    state = run_async(_state(url, namespace))
    in_flight = state.requested - state.ended
    console.print(f"{url}, namespace {namespace}: {state.events} events, {state.bytes / 1024**2:.1f} MB", markup=False)
    console.print(f"rollouts: {state.requested} requested, {state.ended} ended, {in_flight} in flight")
    if state.dead:
        console.print(f"dead letters: {state.dead}", style="red")
    workers: dict[str, int] = {}
    for worker in facts.get("workers", {}):
        workers[worker.rpartition("-")[0]] = workers.get(worker.rpartition("-")[0], 0) + 1
    table = Table()
    for heading in ("pool", "kind", "queued", "in progress", "of them redelivered", "workers"):
        table.add_column(heading, overflow="fold")
    for pool in state.pools:
        here = str(workers.get(pool.instance) or ("elsewhere" if pool.served else "none"))
        table.add_row(pool.instance, pool.kind, str(pool.waiting), str(pool.held), str(pool.redelivered), here)
    console.print(table)


async def _state(url: str, namespace: str) -> LogState:
    config = load_config([], [f"log.namespace={namespace}"])
    async with Deployment.connect(url, config) as deployment:
        return await overview(deployment.bus)
