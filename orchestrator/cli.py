"""The `jetgym` command: finds the subcommand, runs it, and turns errors into one clear line.

A subcommand is a module of `orchestrator.commands` with a function `add_to(app)`; only the module of the subcommand
asked for is imported, so that `jetgym` answers quickly. This is one of the places that may catch every exception.
"""

import logging
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from runpy import run_path
from typing import Annotated, Final

import structlog
import typer

_SHADOWING: Final = Path(__file__).resolve().parent.parent / "contracts" / "shadowing.py"
COMMANDS: Final = (
    "run",
    "up",
    "worker",
    "status",
    "audit",
    "dead",
    "cancel",
    "log",
    "rebuild",
    "export",
    "validate",
    "datasets",
    "new",
    "doctor",
)

HELP: Final = """
Collects rollouts of LLM agents for reinforcement learning and evaluation.

\b
jetgym doctor                         what is missing on this machine
jetgym run configs/demo.yaml          collect rollouts
jetgym run configs/demo.yaml --repeats 8 ++policy.models.local_llm.seed=1
jetgym new resources my_environment   a working component to change

CONFIG is a YAML file; a=b, ++a=b, +a=b and ~a beside it change it (Hydra's overrides).
"""


def build(names: Sequence[str] = COMMANDS) -> typer.Typer:
    """The command line with these subcommands."""
    app = typer.Typer(
        name="jetgym",
        help=HELP,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for name in names:
        import_module(f"orchestrator.commands.{name}").add_to(app)
    return app


def main() -> int:
    """The entry point of `jetgym`: returns the exit code, or raises `SystemExit` with it."""
    arguments = sys.argv[1:]
    structlog.configure(  # what was asked for goes to standard output; what went wrong on the way to standard error
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        run_path(str(_SHADOWING))["check_packages"]()
        asked = [arguments[0]] if arguments and arguments[0] in COMMANDS else COMMANDS
        from components.output import ending_with_the_reader  # noqa: PLC0415 - only now it is known to be ours

        with ending_with_the_reader():
            build(asked)(args=arguments, prog_name="jetgym")
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        tell = import_module("orchestrator.commands.failures").tell
        if not tell(error):
            raise
        return 2
    return 0


def _version(asked: bool) -> None:
    if asked:
        from components.workers.frame import jetgym_version  # noqa: PLC0415 - nothing else here needs it

        typer.echo(f"jetgym {jetgym_version()}")
        raise typer.Exit


def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Say which JetGym this is.")
    ] = False,
) -> None:
    pass
