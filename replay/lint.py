"""Is an agent's code a function of its calls and replies? Tries it in several processes and compares.

Called by `replay lint`. Each rollout's agent is tried under several orders of its recorded replies, twice in each of
four processes: two with the same hash seed, two with others. All must do the same. Which of them do not tells what the
code depends on.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import msgspec

from components.durable import first_difference
from components.durable.difference import shown
from replay.errors import UnknownName
from replay.facts import Facts
from replay.isolated import Isolated, find_venv
from replay.source import Source, load
from replay.suspects import Suspect
from replay.trajectory import Trajectory
from replay.trials import Made, Trace, Trials
from replay.verify import Resolved, Verifier, needs_venv

HASH_SEEDS: Final = ("0", "0", "1", "4711")

_WHY: Final = {
    "run": "it differs from one run to the next in one process: a global or class variable, the clock, randomness",
    "process": "it differs between processes with the same hash seed: the clock, randomness, an address, the process",
    "hash": "it differs with the hash seed: the order of a set of strings, or hash()",
}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A line that does not always do the same."""

    file: str
    line: int
    why: str
    call_key: str
    field: str
    one: str
    other: str
    """What it did, and what it did instead; long values are cut."""
    rollout_id: str
    order: int
    """Seed of the order of the replies; 0 is the order of the calls."""


class Linted(msgspec.Struct, frozen=True, kw_only=True):
    """What a lint found."""

    agent: str
    rollouts: int
    orders: int
    findings: list[Finding]
    """The first of each line and reason."""
    suspects: list[Suspect]
    """Lines that reach for the clock, randomness and the like."""


class Linter:
    """Tries the agents of a source's rollouts; its processes end on leaving."""

    def __init__(
        self, source: Source, facts: Facts, override: Resolved | None, roots: list[str], deadline_s: float
    ) -> None:
        """`deadline_s` is how long the code of one rollout may run in one process."""
        self._source, self._facts, self._roots = source, facts, roots
        self._override = override or {}
        self._verifier = Verifier(facts, override)
        self._deadline_s = deadline_s
        self._processes: list[Isolated] = []

    async def lint(self, agent: str, rollouts: Iterable[str], orders: int) -> Linted:
        """Tries these rollouts of an agent. Raises `ReplayError`."""
        findings: dict[tuple[str, int, str], Finding] = {}
        suspects: dict[Suspect, None] = {}
        tried = 0
        async with AsyncExitStack() as stack:
            async for trajectory, found in self._tried(rollouts, orders, stack):
                tried += 1
                suspects |= dict.fromkeys(suspect for trials in found for suspect in trials.suspects)
                for finding in compared(trajectory.rollout_id, found):
                    findings.setdefault((finding.file, finding.line, finding.why), finding)
        if not tried:
            raise UnknownName(f"no rollout of agent {agent!r} is recorded in {self._source.name}: run it once")
        return Linted(
            agent=agent, rollouts=tried, orders=orders, findings=list(findings.values()), suspects=list(suspects)
        )

    async def _tried(
        self, rollouts: Iterable[str], orders: int, stack: AsyncExitStack
    ) -> AsyncIterator[tuple[Trajectory, list[Trials]]]:
        for rollout in rollouts:
            trajectory = await load(self._source, rollout)
            if not self._processes:
                code = self._verifier.code_of(trajectory, next(trajectory.executions()))
                python = find_venv(code.implementation) if needs_venv(code) else Path(sys.executable)
                for seed in HASH_SEEDS:
                    started = await Isolated.start(
                        python,
                        self._facts,
                        self._override,
                        self._roots,
                        hash_seed=seed,
                        deadline_s=self._deadline_s,
                    )
                    stack.push_async_callback(started.stop)
                    self._processes.append(started)
            asked = (process.trials(trajectory, orders) for process in self._processes)
            yield trajectory, list(await asyncio.gather(*asked))


def compared(rollout_id: str, processes: list[Trials]) -> Iterable[Finding]:
    """Where the trials of one rollout differ; the processes are as `HASH_SEEDS` says."""
    first = processes[0]
    for place, trial in enumerate(first.trials):
        others = [
            *(("run", process.trials[place].first, process.trials[place].again) for process in processes),
            ("process", trial.first, processes[1].trials[place].first),
            *(("hash", trial.first, process.trials[place].first) for process in processes[2:]),
        ]
        reached = sys.maxsize
        for why, one, other in others:
            found = _difference(rollout_id, trial.seed, _WHY[why], (one, other), reached)
            if found is not None:
                reached, finding = found
                yield finding


def _difference(
    rollout_id: str, order: int, why: str, traces: tuple[Trace, Trace], before: int
) -> tuple[int, Finding] | None:
    """The first difference and its place, if it is before a place from which on all may follow from another one."""
    one, other = traces
    for place in range(min(before, max(len(one.calls), len(other.calls)))):
        was = one.calls[place] if place < len(one.calls) else None
        now = other.calls[place] if place < len(other.calls) else None
        if was != now:
            at = was or now
            assert at is not None
            field, left, right = _told(was, now)
            return place, Finding(
                file=at.file,
                line=at.line,
                why=why,
                call_key=at.key,
                field=field,
                one=shown(left),
                other=shown(right),
                rollout_id=rollout_id,
                order=order,
            )
    if one.ended == other.ended or before < sys.maxsize:
        return None
    field, left, right = first_difference(one.ended, other.ended)
    return len(one.calls), Finding(
        file=one.file,
        line=one.line,
        why=why,
        call_key="",
        field=f"result{field}",
        one=shown(left),
        other=shown(right),
        rollout_id=rollout_id,
        order=order,
    )


def _told(was: Made | None, now: Made | None) -> tuple[str, str, str]:
    """The field and both values."""
    if was is None or now is None or (was.key, was.target) != (now.key, now.target):
        return "", _named(was), _named(now)
    if was.data != now.data:
        field, left, right = first_difference(was.data, now.data)
        return f"data{field}", left, right
    return "", f"{was.file}:{was.line}", f"{now.file}:{now.line}"


def _named(call: Made | None) -> str:
    return f"{call.target} as {call.key}" if call is not None else "nothing"
