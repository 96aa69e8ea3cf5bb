"""`jetgym up`: keeps a deployment running until it is told to stop."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from bus.run_folder import CONFIG, RESULTS
from orchestrator.commands.common import Configs, Steps, Url, console, resolve, run_async
from orchestrator.config import Config
from orchestrator.describing import check
from orchestrator.hints import typed
from orchestrator.launch import Deployment, new_id
from orchestrator.run_files import RunFiles


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("up", no_args_is_help=True)(up)


def up(
    configs: Configs,
    url: Url = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="Directory of log and worker logs; by default results/<ID>.", show_default=False),
    ] = None,
) -> None:
    """Keeps a deployment running, for runs that come with --url.

    Starts a server of its own, or uses the one at --url, and starts the workers. Ctrl-C lets them finish what they
    hold and stops. With log.max_age in the config, runs that have been over for longer leave the log.

    \b
    jetgym up configs/demo.yaml
    jetgym up configs/demo.yaml ++server.port=4222
    """  # noqa: D301 - the help keeps these lines as they are
    config = resolve(configs, {"server": {"url": url} if url else None})
    folder = output or RESULTS / new_id("d")
    try:
        run_async(_up(config, folder))
    except KeyboardInterrupt:
        console.print("stopped")


async def _up(config: Config, folder: Path) -> None:
    with Steps() as report:
        checked = await check(config, report)
        with RunFiles(folder) as files:
            async with Deployment.start(checked, files, report) as deployment:
                (folder / CONFIG).write_text(config.to_yaml(checked.descriptions))
                report.pause()
                url = config.redactor.text(deployment.url)
                console.print(f"ready at {url}; Ctrl-C stops it", markup=False)
                for words in (
                    ["jetgym", "run", "--url", url, "--input", "TASKS.jsonl"],
                    ["jetgym", "status", str(folder)],
                    ["replay", "list", "--run", str(folder)],
                ):
                    console.print(f"  {typed(*words)}", markup=False, soft_wrap=True)
                await deployment.while_alive(asyncio.Event().wait())
