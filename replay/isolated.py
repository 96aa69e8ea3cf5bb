"""Re-executes rollouts in the agent's own venv: the process in there, and this side of it.

An agent whose `requirements.txt` asks for more than the core runs in a venv that `jetgym` builds when it first starts
the agent. It has JetGym's core but not this package, so the package is handed to it by its path. One JSON line a
rollout goes in, one line with the answer comes out. Nothing else is read or written there.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, Self

import msgspec

from components.loading import add_roots
from contracts.codec import decode, encode
from contracts.events import Kind, Recorded
from replay.engine import Upcoming
from replay.errors import CannotVerify, ReplayError
from replay.facts import Facts
from replay.rescoring import Rescored, Rescorer, Retooled
from replay.trajectory import Trajectory
from replay.trials import Trials, try_out
from replay.verify import Verdict, Verifier

VENVS: Final = Path(".jetgym") / "venvs"
PACKAGE: Final = str(Path(__file__).resolve().parent)
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


Ask = Literal["verify", "ahead", "reverify", "retool", "lint"]
"""What is wanted of a rollout: a verdict, what its code does where the history ends, its score, its tools' outputs,
what its code does when replies come in other orders."""


class _Stored(msgspec.Struct, array_like=True):
    seq: int
    subject: str
    raw: bytes


class _Setup(msgspec.Struct):
    """The first line: what the verifier is made with."""

    roots: list[str]
    deployment: list[tuple[_Stored, bytes]]
    override: dict[str, Any]
    loose: bool = False


class _Job(msgspec.Struct):
    """A further line: one rollout."""

    rollout_id: str
    events: list[_Stored]
    blobs: dict[str, bytes]
    ask: Ask = "verify"
    orders: int = 0


class _Tried(msgspec.Struct):
    trials: Trials | None = None
    reason: str = ""


class _Ahead(msgspec.Struct):
    upcoming: Upcoming | None = None
    reason: str = ""


def find_venv(implementation: str, folder: Path = VENVS, kind: Kind = "agents") -> Path:
    """The Python of the venv that was built last for a component. Raises `CannotVerify` that says how to build one."""
    label = f"{kind}/{implementation}"
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
    async def start(
        cls,
        python: Path,
        facts: Facts,
        override: Mapping[str, Any],
        roots: list[str],
        *,
        loose: bool = False,
        hash_seed: str | None = None,
    ) -> Self:
        """Starts the process, with a hash seed of its own if one is given; it imports the code with the first job."""
        process = await asyncio.create_subprocess_exec(
            str(python),
            "-P",
            "-c",
            _BOOT,
            PACKAGE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            limit=_LINE_LIMIT,
            env=None if hash_seed is None else os.environ | {"PYTHONHASHSEED": hash_seed},
        )
        setup = _Setup(
            roots=roots,
            deployment=[(_store(event), data) for event, data in facts.events],
            override=dict(override),
            loose=loose,
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
        return msgspec.json.decode(await self._asked(trajectory), type=Verdict)

    async def upcoming(self, trajectory: Trajectory) -> Upcoming:
        """What the code in there does where the history ends. Raises `CannotVerify`."""
        answer = msgspec.json.decode(await self._asked(trajectory, "ahead"), type=_Ahead)
        if answer.upcoming is None:
            raise CannotVerify(answer.reason)
        return answer.upcoming

    async def reverify(self, trajectory: Trajectory) -> Rescored:
        """What the verifier in there says. Raises `CannotVerify`."""
        return msgspec.json.decode(await self._asked(trajectory, "reverify"), type=Rescored)

    async def retool(self, trajectory: Trajectory) -> list[Retooled]:
        """What the tools in there say. Raises `CannotVerify`."""
        return msgspec.json.decode(await self._asked(trajectory, "retool"), type=list[Retooled])

    async def trials(self, trajectory: Trajectory, orders: int) -> Trials:
        """What the code in there does in so many orders of the replies. Raises `CannotVerify`."""
        answer = msgspec.json.decode(await self._asked(trajectory, "lint", orders), type=_Tried)
        if answer.trials is None:
            raise CannotVerify(answer.reason)
        return answer.trials

    async def _asked(self, trajectory: Trajectory, ask: Ask = "verify", orders: int = 0) -> bytes:
        events = [_store(event) for event in trajectory.events]
        job = _Job(
            rollout_id=trajectory.rollout_id, events=events, blobs=dict(trajectory.blobs), ask=ask, orders=orders
        )
        await self._send(job)
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            code = await self._process.wait()
            raise CannotVerify(f"the process in the agent's venv ended with {code}; what it said stands above")
        return line

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
    facts = Facts((_recorded(event), data) for event, data in setup.deployment)
    verifier, rescorer = Verifier(facts, setup.override, loose=setup.loose), Rescorer(facts, setup.override)
    with asyncio.Runner() as runner:
        for line in sys.stdin.buffer:
            job = msgspec.json.decode(line, type=_Job)
            trajectory = Trajectory(job.rollout_id, map(_recorded, job.events), job.blobs)
            answer: Verdict | _Ahead | Rescored | list[Retooled] | _Tried
            match job.ask:
                case "verify":
                    answer = verifier.verify(trajectory)
                case "ahead":
                    answer = _ahead(verifier, trajectory)
                case "reverify":
                    answer = runner.run(rescorer.reverify(trajectory))
                case "lint":
                    answer = _tried(verifier, trajectory, job.orders)
                case "retool":
                    answer = runner.run(rescorer.retool(trajectory))
            answers.write(msgspec.json.encode(answer) + b"\n")
            answers.flush()


def _ahead(verifier: Verifier, trajectory: Trajectory) -> _Ahead:
    try:
        return _Ahead(upcoming=verifier.upcoming(trajectory))
    except ReplayError as error:
        return _Ahead(reason=str(error))


def _tried(verifier: Verifier, trajectory: Trajectory, orders: int) -> _Tried:
    run = next(trajectory.executions())
    try:
        agent, config = verifier.loaded(trajectory, run)
        return _Tried(trials=try_out(trajectory, run, agent, config, range(orders)))
    except ReplayError as error:
        return _Tried(reason=str(error))


def _store(recorded: Recorded) -> _Stored:
    return _Stored(recorded.seq, recorded.subject, recorded.raw or encode(recorded.event))


def _recorded(stored: _Stored) -> Recorded:
    return Recorded(seq=stored.seq, subject=stored.subject, event=decode(stored.raw), raw=stored.raw)


def _built_for(mark: Path) -> str:
    try:
        return str(json.loads(mark.read_text()).get("component", ""))
    except (OSError, ValueError, AttributeError):
        return ""
