"""The `jetgym` command: finds the subcommand, runs it, and turns errors into one clear line.

A subcommand is a module of `orchestrator.commands` with a function `add_to(app)`; only the module of the subcommand
asked for is imported, so that `jetgym` answers quickly. This is one of the places that may catch every exception.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

import typer

from orchestrator.shadowing import check_packages

COMMANDS: Final = (
    "run",
    "up",
    "worker",
    "status",
    "rebuild",
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
    app.callback()(_nothing)
    for name in names:
        import_module(f"orchestrator.commands.{name}").add_to(app)
    return app


def main() -> int:
    """The entry point of `jetgym`: returns the exit code, or raises `SystemExit` with it."""
    arguments = sys.argv[1:]
    try:
        check_packages()
        asked = [arguments[0]] if arguments and arguments[0] in COMMANDS else COMMANDS
        build(asked)(args=arguments, prog_name="jetgym")
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        tell = import_module("orchestrator.commands.failures").tell
        if not tell(error):
            raise
        return 2
    return 0


def _nothing() -> None:
    pass
