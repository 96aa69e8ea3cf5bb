"""Runs a component's code on a rollout in a process of its own: the process, and this side of it.

A component whose `requirements.txt` asks for more than the core runs in a venv that `jetgym` builds when it first
starts it. It has JetGym's core but not this package, so the package is handed to it by its path. One JSON line a
rollout goes in, one line with the answer comes out. Nothing else is read or written there. What the code does to its
process is told as `CannotVerify` (`apart`).
"""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, Self

import msgspec

from components.loading import add_roots
from contracts.codec import decode, encode
from contracts.events import Kind, Recorded
from replay.apart import Apart, serving
from replay.engine import Upcoming
from replay.errors import CannotVerify, CodeLost, ReplayError
from replay.facts import Facts
from replay.payloads import Heads
from replay.rescoring import Rescored, Rescorer, Retooled
from replay.trajectory import AgentRun, Trajectory
from replay.trials import Trials, try_out
from replay.verify import Verdict, Verifier

VENVS: Final = Path(".jetgym") / "venvs"
PACKAGE: Final = str(Path(__file__).resolve().parent)
_COMPLETE: Final = "jetgym.json"
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
    loose: bool
    deadline_s: float


class _Job(msgspec.Struct):
    """A further line: one rollout, of so many events and blobs, each on a line that follows."""

    rollout_id: str
    events: int
    blobs: int
    ask: Ask = "verify"
    orders: int = 0
    prefix: str = ""
    """Of the calls of the agent that is tried; empty for the rollout's own."""


class _Blob(msgspec.Struct, array_like=True):
    reference: str
    data: bytes


class _Tried(msgspec.Struct):
    trials: Trials | None = None
    reason: str = ""


class _Ahead(msgspec.Struct):
    upcoming: Upcoming | None = None
    reason: str = ""


_STORED: Final = msgspec.json.Decoder(_Stored)
_BLOB: Final = msgspec.json.Decoder(_Blob)


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
    """A verifier in another process."""

    def __init__(self, process: Apart) -> None:
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
        deadline_s: float,
    ) -> Self:
        """Starts the process, with a hash seed of its own if one is given; it imports the code with the first job.

        `deadline_s` is how long the code may run for one rollout.
        """
        isolated = cls(await Apart.start([str(python), "-P", "-c", _BOOT, PACKAGE], hash_seed=hash_seed))
        setup = _Setup(
            roots=roots,
            deployment=[(_store(event), data) for event, data in facts.events],
            override=dict(override),
            loose=loose,
            deadline_s=deadline_s,
        )
        await isolated._process.send(msgspec.json.encode(setup))
        return isolated

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.ended

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

    async def trials(self, trajectory: Trajectory, run: AgentRun, orders: int) -> Trials:
        """What the code of one of its agents does in there in so many orders of the replies. Raises `CannotVerify`."""
        answer = msgspec.json.decode(await self._asked(trajectory, "lint", orders, run.prefix), type=_Tried)
        if answer.trials is None:
            raise CannotVerify(answer.reason)
        return answer.trials

    async def _asked(self, trajectory: Trajectory, ask: Ask = "verify", orders: int = 0, prefix: str = "") -> bytes:
        events, blobs = trajectory.events, trajectory.blobs
        job = _Job(
            rollout_id=trajectory.rollout_id,
            events=len(events),
            blobs=len(blobs),
            ask=ask,
            orders=orders,
            prefix=prefix,
        )
        send, written = self._process.send, msgspec.json.encode
        try:
            await send(written(job))
            for event in events:
                await send(written(_store(event)))
            for reference in blobs:
                await send(written(_Blob(reference, blobs[reference])))
            line = await self._process.answer()
        except asyncio.CancelledError:
            self._process.kill()
            raise
        if not line:
            raise CodeLost(f"rollout {trajectory.rollout_id}: {self._process.lost()}")
        return line

    async def stop(self) -> None:
        """Ends the process."""
        await self._process.stop()


def serve() -> None:
    """The other side: reads rollouts until there are no more, and answers each."""
    channel = serving()
    setup = msgspec.json.decode(channel.given.readline(), type=_Setup)
    add_roots(setup.roots)
    facts = Facts((_recorded(event), data) for event, data in setup.deployment)
    verifier, rescorer = Verifier(facts, setup.override, loose=setup.loose), Rescorer(facts, setup.override)
    with asyncio.Runner() as runner:
        for line in channel.given:
            job = msgspec.json.decode(line, type=_Job)
            trajectory = _trajectory(job, channel.given)
            answer: Verdict | _Ahead | Rescored | list[Retooled] | _Tried
            limits = setup.deadline_s, job.events
            match job.ask:
                case "verify":
                    with channel.limited(*limits):
                        answer = verifier.verify(trajectory)
                case "ahead":
                    with channel.limited(*limits):
                        answer = _ahead(verifier, trajectory)
                case "lint":
                    with channel.limited(*limits):
                        answer = _tried(verifier, trajectory, job)
                case "reverify":
                    answer = runner.run(channel.waited_for(rescorer.reverify(trajectory), *limits))
                case "retool":
                    answer = runner.run(channel.waited_for(rescorer.retool(trajectory), *limits))
            channel.say(msgspec.json.encode(answer))


def _trajectory(job: _Job, given: BinaryIO) -> Trajectory:
    heads = Heads()
    events = [heads.of(_recorded(_STORED.decode(given.readline()))) for _ in range(job.events)]
    for _ in range(job.blobs):
        blob = _BLOB.decode(given.readline())
        heads.payloads.add(blob.reference, blob.data)
    return Trajectory(job.rollout_id, events, heads.payloads)


def _ahead(verifier: Verifier, trajectory: Trajectory) -> _Ahead:
    try:
        return _Ahead(upcoming=verifier.upcoming(trajectory))
    except ReplayError as error:
        return _Ahead(reason=str(error))


def _tried(verifier: Verifier, trajectory: Trajectory, job: _Job) -> _Tried:
    run = next(run for run in trajectory.executions() if run.prefix == job.prefix)
    try:
        agent, config = verifier.loaded(trajectory, run)
        return _Tried(trials=try_out(trajectory, run, agent, config, range(job.orders)))
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
