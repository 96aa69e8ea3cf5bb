"""The `replay` command: finds the subcommand, runs it, and turns errors into one clear line.

A subcommand is a module of `replay.commands` with a function `add_to(app)`; only the module of the subcommand asked
for is imported. An error that a user can mend ends with code 2; any other is a fault of ours and keeps its traceback.
This is one of the places that may catch every exception.
"""

import logging
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from runpy import run_path
from typing import Final

import structlog
import typer

_SHADOWING: Final = Path(__file__).resolve().parent.parent / "contracts" / "shadowing.py"
COMMANDS: Final = (
    "list",
    "show",
    "stats",
    "verify",
    "diff",
    "whatif",
    "fork",
    "reverify",
    "retool",
    "why",
    "step",
    "lint",
    "export",
    "import",
    "ui",
)

HELP: Final = """
Reads and re-runs the trajectories of rollouts: from a run's log, from a server, or from a file.

\b
replay list                 the rollouts of the newest run in results/
replay list --runs          all runs here
replay show last            the story of the rollout that ended last
replay stats                a run at a glance, with histograms
replay verify last          the agent's code again, on the recorded replies
replay verify --run last    all rollouts of a run: its agents' regression test
replay diff A B             where two rollouts part, word by word
replay whatif last --at m_2 --drop     what the code would ask next
replay fork last --at turn:2 -n 8      new rollouts from that state on, live
replay reverify --run last  the rewards again, with today's verifier
replay retool --run last    the tool calls again, with today's tools
replay step last            a debugger over time: back, frames, variables
replay lint AGENT           what in its code is not deterministic, by line
replay why end              how the end came about, back to the task
replay export last -o FILE  its events, messages, spans, a page, …; see --help
replay import FILE --output results/old     events into a log of their own
replay ui                   all of this in a browser

ID is a rollout's ID, a beginning of it that no other has, or `last`; RUN is the same for runs, or a directory.
A run that has ended is read from its directory, whose server is started for as long as it takes. A run with --url is
read from the log there: its config.yaml has the URL.
Only `fork` and `reverify` write: new rollouts, and revisions of rewards.
"""


def build(names: Sequence[str] = COMMANDS) -> typer.Typer:
    """The command line with these subcommands."""
    app = typer.Typer(
        name="replay",
        help=HELP,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_nothing)
    for name in names:
        import_module(f"replay.commands.{name}").add_to(app)
    return app


def main(*, installed: bool = True) -> None:
    """The entry point of `replay`; in an agent's venv, where only a part of JetGym is, it is not `installed`."""
    arguments = sys.argv[1:]
    _log_to_stderr()
    asked = [arguments[0]] if arguments and arguments[0] in COMMANDS else COMMANDS
    try:
        if installed:
            run_path(str(_SHADOWING))["check_packages"]()
        from components.output import ending_with_the_reader  # noqa: PLC0415 - only now it is known to be ours

        with ending_with_the_reader():
            build(asked)(args=arguments, prog_name="replay")
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if not _can_be_mended(error):
            raise
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)


def _can_be_mended(error: Exception) -> bool:
    from bus import BusError  # noqa: PLC0415 - only a failure pays for it
    from replay.errors import ReplayError  # noqa: PLC0415

    return isinstance(error, ReplayError | BusError)


def _log_to_stderr() -> None:
    """Standard output is for what was asked for; warnings of the bus go to standard error."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _nothing() -> None:
    pass
