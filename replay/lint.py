"""Is an agent's code a function of its calls and replies? Tries it in several processes and compares.

Called by `replay lint`. Each rollout's agent is tried under several orders of its recorded replies, twice in each of
four processes: two with the same hash seed, two with others. All must do the same. Which of them do not tells what the
code depends on.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack
from itertools import zip_longest
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from components.durable import first_difference
from components.durable.difference import differences, shown
from replay.errors import UnknownName
from replay.facts import Facts
from replay.isolated import Isolated, find_venv
from replay.source import Source, load
from replay.suspects import Suspect
from replay.trajectory import Trajectory
from replay.trials import Made, Trace, Trial, Trials
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
        """Tries these rollouts, of an agent or in which it was called. Raises `ReplayError`."""
        findings: dict[tuple[str, int, str], Finding] = {}
        suspects: dict[Suspect, None] = {}
        tried = 0
        async with AsyncExitStack() as stack:
            async for trajectory, found in self._tried(agent, rollouts, orders, stack):
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
        self, agent: str, rollouts: Iterable[str], orders: int, stack: AsyncExitStack
    ) -> AsyncIterator[tuple[Trajectory, list[Trials]]]:
        for rollout in rollouts:
            trajectory = await load(self._source, rollout)
            run = next(run for run in trajectory.executions() if is_meant(self._facts, agent, run.agent))
            if not self._processes:
                code = self._verifier.code_of(trajectory, run)
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
            asked = (process.trials(trajectory, run, orders) for process in self._processes)
            yield trajectory, list(await asyncio.gather(*asked))


def is_meant(facts: Facts, agent: str, instance: str) -> bool:
    """Whether an instance is what a user calls an agent: by its name, or by that of its implementation."""
    description = facts.description(instance)
    return agent == instance or (description is not None and agent == description.implementation)


def compared(rollout_id: str, processes: list[Trials]) -> Iterable[Finding]:
    """Where the trials of one rollout differ, the earliest call first; the processes are as `HASH_SEEDS` says.

    Of each reason the first difference in a trial. What may follow from another reason is left out: what comes after
    its difference, but for a field that differs there for this one alone, in all trials.
    """
    found: list[tuple[int, Finding]] = []
    reached = [sys.maxsize] * len(processes[0].trials)
    explained: set[tuple[str, int, str]] = set()
    for why in _WHY:
        seen: set[tuple[str, int, str]] = set()
        for number, trial in enumerate(processes[0].trials):
            told = False
            for one, other in _pairs(why, [process.trials[number] for process in processes]):
                for place, difference in _differences(one, other, calls_only=reached[number] < sys.maxsize):
                    what = difference.what
                    seen.add(what)
                    alone = why != "run" and not told and what not in explained
                    if place < reached[number] or alone:
                        told = True
                        reached[number] = min(place, reached[number])
                        found.append((place, difference.finding(_WHY[why], rollout_id, trial.seed)))
        explained |= seen
    return [finding for _, finding in sorted(found, key=lambda each: each[0])]


def _pairs(why: str, trials: list[Trial]) -> list[tuple[Trace, Trace]]:
    """What must be the same, of one order of the replies in each process."""
    if why == "run":
        return [(trial.first, trial.again) for trial in trials]
    return [(trials[0].first, other.first) for other in (trials[1:2] if why == "process" else trials[2:])]


class _Difference(NamedTuple):
    file: str
    line: int
    call_key: str
    field: str
    one: str
    other: str

    @property
    def what(self) -> tuple[str, int, str]:
        """What differs: a field of the calls of one line, or which calls there are, whichever line makes them."""
        return (self.file, self.line, self.field) if self.field else ("", 0, "")

    def finding(self, why: str, rollout_id: str, order: int) -> Finding:
        return Finding(
            file=self.file,
            line=self.line,
            why=why,
            call_key=self.call_key,
            field=self.field,
            one=shown(self.one),
            other=shown(self.other),
            rollout_id=rollout_id,
            order=order,
        )


def _differences(one: Trace, other: Trace, *, calls_only: bool) -> Iterator[tuple[int, _Difference]]:
    """All differences up to a call that only one of them makes, each with its place; else that of how they ended."""
    same = True
    for place, (was, now) in enumerate(zip_longest(one.calls, other.calls)):
        if was == now:
            continue
        same = False
        at = was or now
        assert at is not None
        if was is None or now is None or (was.key, was.target) != (now.key, now.target):
            yield place, _Difference(at.file, at.line, at.key, "", _named(was), _named(now))
            return
        if was.data == now.data:
            yield place, _Difference(at.file, at.line, at.key, "", _line(was), _line(now))
            continue
        for field, left, right in differences(was.data, now.data):
            yield place, _Difference(at.file, at.line, at.key, f"data{field}", left, right)
    if same and not calls_only and one.ended != other.ended:
        field, left, right = first_difference(one.ended, other.ended)
        yield len(one.calls), _Difference(one.file, one.line, "", f"result{field}", left, right)


def _line(call: Made) -> str:
    return f"{call.file}:{call.line}"


def _named(call: Made | None) -> str:
    return f"{call.target} as {call.key}" if call is not None else "nothing"
