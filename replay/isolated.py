"""Verifies rollouts in the agent's own venv: the process in there, and this side of it.

An agent whose `requirements.txt` asks for more than the core runs in a venv that `jetgym` builds when it first starts
the agent. It has JetGym's core but not this package, so the package is handed to it by its path. One JSON line a
rollout goes in, one line with the verdict comes out. Nothing else is read or written there.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from components.loading import add_roots
from contracts.codec import decode
from contracts.events import Recorded
from replay.errors import CannotVerify
from replay.facts import Facts
from replay.trajectory import Trajectory
from replay.verify import Verdict, Verifier

VENVS: Final = Path(".jetgym") / "venvs"
_PACKAGE: Final = str(Path(__file__).resolve().parent)
_COMPLETE: Final = "jetgym.json"
_LINE_LIMIT: Final = 2**30
_BOOT: Final = """
import importlib.util as util, sys
folder = sys.argv[1]
spec = util.spec_from_file_location("replay", folder + "/__init__.py", submodule_search_locations=[folder])
sys.modules["replay"] = package = util.module_from_spec(spec)
spec.loader.exec_module(package)
from replay.isolated import serve
serve()
"""


class _Stored(msgspec.Struct, array_like=True):
    seq: int
    subject: str
    raw: bytes


class _Setup(msgspec.Struct):
    """The first line: what the verifier is made with."""

    roots: list[str]
    deployment: list[tuple[_Stored, bytes]]
    override: dict[str, Any]


class _Job(msgspec.Struct):
    """A further line: one rollout."""

    rollout_id: str
    events: list[_Stored]
    blobs: dict[str, bytes]


def find_venv(implementation: str, folder: Path = VENVS) -> Path:
    """The Python of the venv that was built last for an agent. Raises `CannotVerify` that says how to build one."""
    label = f"agents/{implementation}"
    found = [mark for mark in folder.glob(f"*/{_COMPLETE}") if _built_for(mark) == label]
    if not found:
        raise CannotVerify(
            f"{label} needs a venv of its own, and there is none in {folder}/: `jetgym validate CONFIG` with a config "
            f"that names it builds one"
        )
    newest = max(found, key=lambda mark: mark.stat().st_mtime)
    return newest.parent / "bin" / "python"


class Isolated:
    """A verifier in another interpreter."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, python: Path, facts: Facts, override: Mapping[str, Any], roots: list[str]) -> Self:
        """Starts the process; it imports the agent's code with the first rollout."""
        process = await asyncio.create_subprocess_exec(
            str(python),
            "-P",
            "-c",
            _BOOT,
            _PACKAGE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            limit=_LINE_LIMIT,
        )
        setup = _Setup(
            roots=roots, deployment=[(_store(event), data) for event, data in facts.events], override=dict(override)
        )
        isolated = cls(process)
        await isolated._send(setup)
        return isolated

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.returncode is not None

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """The verdict of the code in there."""
        job = _Job(
            rollout_id=trajectory.rollout_id, events=[_store(e) for e in trajectory.events], blobs=trajectory.blobs
        )
        await self._send(job)
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            code = await self._process.wait()
            raise CannotVerify(f"the process in the agent's venv ended with {code}; what it said stands above")
        return msgspec.json.decode(line, type=Verdict)

    async def stop(self) -> None:
        """Ends the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._process.wait()

    async def _send(self, message: _Setup | _Job) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(message) + b"\n")
            await self._process.stdin.drain()
        except ConnectionError:
            return  # it ended: reading its answer tells with which code


def serve() -> None:
    """The other side: reads rollouts from standard input until its end, writes verdicts to standard output."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what an agent prints is no verdict
    setup = msgspec.json.decode(sys.stdin.buffer.readline(), type=_Setup)
    add_roots(setup.roots)
    verifier = Verifier(Facts((_recorded(event), data) for event, data in setup.deployment), setup.override)
    for line in sys.stdin.buffer:
        job = msgspec.json.decode(line, type=_Job)
        trajectory = Trajectory(job.rollout_id, map(_recorded, job.events), job.blobs)
        answers.write(msgspec.json.encode(verifier.verify(trajectory)) + b"\n")
        answers.flush()


def _store(recorded: Recorded) -> _Stored:
    return _Stored(recorded.seq, recorded.subject, recorded.raw)


def _recorded(stored: _Stored) -> Recorded:
    return Recorded(seq=stored.seq, subject=stored.subject, event=decode(stored.raw), raw=stored.raw)


def _built_for(mark: Path) -> str:
    try:
        return str(json.loads(mark.read_text()).get("component", ""))
    except (OSError, ValueError, AttributeError):
        return ""
