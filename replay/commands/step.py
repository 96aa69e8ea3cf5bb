"""`replay step`: a debugger over time."""

import os
import sys
from pathlib import Path
from sysconfig import get_path
from typing import Annotated

import typer

from replay.commands.common import (
    Config,
    Files,
    Json,
    Namespace,
    Run,
    Url,
    console,
    resolved,
    run_async,
    use_own_components,
    where,
)
from replay.debugger import Debugger
from replay.errors import CannotVerify, Misused
from replay.facts import Facts, facts_of
from replay.isolated import PACKAGE, find_venv
from replay.names import find_rollout
from replay.opening import Where, open_source, run_in
from replay.source import load
from replay.stepping import Stepper
from replay.trajectory import AgentRun, Trajectory
from replay.verify import Verifier, needs_venv

_BOOT = """
import importlib.util as util, sys
folder, ours = sys.argv.pop(1), sys.argv.pop(1)
sys.path.append(ours)
spec = util.spec_from_file_location("replay", folder + "/__init__.py", submodule_search_locations=[folder])
sys.modules["replay"] = package = util.module_from_spec(spec)
spec.loader.exec_module(package)
from replay.cli import main
main(installed=False)
"""


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("step", no_args_is_help=True)(step)


def step(
    rollout: Annotated[
        str, typer.Argument(metavar="ID", help="A rollout's ID, the beginning of it, or `last`.", show_default=False)
    ],
    *,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            help="Begin there: an event's number (of the log or file that is read: an export numbers events anew), a "
            "call's key, `turn:K`, `end`.",
            show_default=False,
        ),
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option(
            "--break",
            metavar="CONDITION",
            help="Where `continue` stops: `call NAME`, `turn K`, `exception`, `tokens N`, `divergence`; again.",
            show_default=False,
        ),
    ] = None,
    call: Annotated[
        str | None,
        typer.Option(
            "--call", metavar="KEY", help="The agent that this call called, not the rollout's own.", show_default=False
        ),
    ] = None,
    config: Config = None,
    run: Run = None,
    url: Url = None,
    namespace: Namespace = "jetgym",
    file: Files = None,
    json: Json = False,
) -> None:
    """Steps through a rollout, forwards and back, with the agent's own frames and variables at every point.

    The agent's code that is here runs on the recorded replies; nothing is
    called, nothing times out and nothing is written. Commands are lines on
    standard input, `help` names them: next, back, goto, break, continue, where,
    up, down, branch, locals, print, list, reply, calls, quit. `breakpoint()` in
    the agent's code opens Python's debugger there, in the step that reaches it.

    Ends with 0, with 1 if a place was reached at which the code does something
    else than is recorded, with 2 if it could not run.

    \b
    replay step last
    replay step last --at turn:3
    replay step last --break exception --break "call add"
    printf 'continue\\nlocals\\n' | replay step last --break divergence
    replay step last --at end --json < /dev/null
    """  # noqa: D301 - the help keeps these lines as they are
    override = resolved(config)
    use_own_components()
    trajectory, facts = run_async(_load(where(run, url, namespace, file), rollout))
    execution = _run(trajectory, call)
    verifier = Verifier(facts, override)
    code = verifier.code_of(trajectory, execution)
    if needs_venv(code):
        _go_there(find_venv(code.implementation))
    agent, settings = verifier.loaded(trajectory, execution)
    stepper = Stepper(trajectory, execution, agent, settings)
    debugger = Debugger(stepper, console, sys.stdin, json=json)
    try:
        debugger.run(at, stop or ())
    finally:
        stepper.close()
    raise typer.Exit(1 if debugger.departed else 0)


async def _load(place: Where, name: str) -> tuple[Trajectory, Facts]:
    async with open_source(place, name) as source:
        run = await run_in(source, place, name)
        return await load(source, await find_rollout(source, name, run)), await facts_of(source)


def _run(trajectory: Trajectory, call: str | None) -> AgentRun:
    """The execution that is meant. Raises `Misused`."""
    for run in trajectory.executions():
        if call is None or run.requested.event.callkey == call:
            return run
    called = [found.key for found in trajectory.calls.values() if found.what == "agent"]
    raise Misused(f"{call!r} is no call of an agent; there are: {', '.join(called) or 'none'}")


def _go_there(python: Path) -> None:
    """The same command in the venv of the agent; returns where this is it.

    The venv comes without what only command lines need; that is taken from here, after all that is in there, and so is
    the server that a run's log is read with.
    """
    if Path(sys.prefix).resolve() == python.parent.parent.resolve():
        return
    programs = os.pathsep.join(filter(None, (os.environ.get("PATH"), get_path("scripts"))))
    command = [str(python), "-P", "-c", _BOOT, PACKAGE, get_path("purelib"), *sys.argv[1:]]
    try:
        os.execve(str(python), command, os.environ | {"PATH": programs})  # noqa: S606
    except OSError as error:
        raise CannotVerify(f"the agent's venv has no Python that starts, {python}: {error.strerror}") from error
