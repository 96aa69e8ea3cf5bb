"""`jetgym worker`: one worker of a pool, on whatever machine this is.

Becomes the worker process itself, so that whatever supervises it (a container engine, systemd, a cluster) sees the
worker's own exit code and its log on standard error.
"""

import os
import sys
import tempfile
from typing import Annotated

import msgspec
import typer

from orchestrator.commands.common import Configs, Steps, resolve, run_async
from orchestrator.commands.failures import errors
from orchestrator.describing import check
from orchestrator.errors import UsageError, nearest
from orchestrator.pools import worker_spec


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("worker", no_args_is_help=True)(worker)


def worker(
    configs: Configs,
    instance: Annotated[str, typer.Option("--instance", help="The instance whose pool it joins.")],
    url: Annotated[str, typer.Option("--url", metavar="nats://HOST:PORT", help="The server that has the log.")],
    index: Annotated[int, typer.Option("--index", min=0, help="Which of the pool's workers it is, from 0.")] = 0,
) -> None:
    """Runs one worker of a pool, for pools that are spread over machines or containers.

    Every machine needs the same configs and code. Only this instance's venv is built.

    \b
    jetgym worker demo.yaml --instance policy --url nats://hub:4222
    jetgym worker demo.yaml --instance counter --index 1 --url nats://hub:4222
    """  # noqa: D301 - the help keeps these lines as they are
    config = resolve(configs)
    if instance not in config.instances:
        raise UsageError(f"there is no instance {instance!r}; {nearest(instance, list(config.instances))}")
    with Steps(errors) as report:
        checked = run_async(check(config, report, only=instance))
    spec = worker_spec(checked, config.instances[instance], url, index)
    with tempfile.TemporaryFile() as file:  # a pipe could be too small for it
        file.write(msgspec.json.encode(spec))
        file.seek(0)
        os.dup2(file.fileno(), 0)
    python = checked.pythons[instance].executable
    sys.stdout.flush()
    os.execv(python, [python, "-P", "-m", "components.workers"])  # noqa: S606 - no shell is wanted
