"""Runs components' code on the rollouts of one source, each where its code can run, and sums up.

Called by the commands that run agents, verifiers and tools again, and by the processes of `several`, which verify. It
holds one trajectory at a time and one entry for each place of departure, whatever the number of rollouts.
"""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from replay.apart import DEADLINE_S, Channel
from replay.engine import Upcoming
from replay.errors import CannotVerify, ReplayError
from replay.facts import Facts
from replay.isolated import Isolated, find_venv
from replay.rescoring import Rescored, Rescorer, Retooled, needs_own_venv, resources_of, verify_call
from replay.source import Source, load
from replay.trajectory import Trajectory
from replay.verify import Resolved, Verdict, Verifier, needs_venv

EXAMPLES: Final = 3
"""Rollouts that are named for each place of departure."""

HERE: Final = Path(sys.executable)
"""The interpreter for what needs no other venv."""

_EVENT: Final = re.compile(r"event \d+")


class Bulk:
    """Code runs in processes of its own, which are started when first needed and ended on leaving.

    `verify` alone runs what needs no other venv in this process: who verifies many has processes for it (`several`),
    and gives the `channel` over which one that spins is told.
    """

    def __init__(
        self,
        source: Source,
        facts: Facts,
        override: Resolved | None,
        roots: list[str],
        *,
        loose: bool = False,
        deadline_s: float = DEADLINE_S,
        channel: Channel | None = None,
    ) -> None:
        self._source, self._facts, self._roots = source, facts, roots
        self._override = override or {}
        self._loose, self._deadline_s, self._channel = loose, deadline_s, channel
        self._here = Verifier(facts, override, loose=loose)
        self._rescorer = Rescorer(facts, override)
        self._there: dict[Path, Isolated] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def verify(self, rollout_ids: Iterable[str]) -> AsyncIterator[Verdict]:
        """The verdicts, one after the other; what cannot be run is one too."""
        for rollout_id in rollout_ids:
            await asyncio.sleep(0)  # here Ctrl-C is heard, also where nothing else waits
            agent = ""
            try:
                trajectory = await load(self._source, rollout_id)
                agent = trajectory.request.agent
                python = self._python(trajectory)
                if python is None:
                    with self._limited(trajectory):
                        verdict = self._here.verify(trajectory)
                    yield verdict
                else:
                    yield await (await self._process(python)).verify(trajectory)
            except ReplayError as error:
                yield Verdict(rollout_id=rollout_id, verdict="could not run", agent=agent, reason=str(error))

    def _limited(self, trajectory: Trajectory) -> AbstractContextManager[None]:
        if self._channel is None:
            return nullcontext()
        return self._channel.limited(self._deadline_s, len(trajectory.events))

    async def upcoming(self, trajectory: Trajectory) -> Upcoming:
        """What the agent's code does where a history ends. Raises `ReplayError`."""
        run = next(trajectory.executions())
        code = self._here.code_of(trajectory, run)
        python = find_venv(code.implementation) if needs_venv(code) else HERE
        return await (await self._process(python)).upcoming(trajectory)

    async def reverify(self, trajectory: Trajectory) -> Rescored:
        """What the verifier that is here now says. What cannot be run is told in it."""
        call = verify_call(trajectory)
        try:
            process = await self._component([call.instance] if call is not None else [])
            return await process.reverify(trajectory)
        except ReplayError as error:
            return Rescored(rollout_id=trajectory.rollout_id, reason=str(error))

    async def retool(self, trajectory: Trajectory) -> list[Retooled]:
        """What the tools that are here now say. Raises `ReplayError`."""
        process = await self._component(resources_of(trajectory))
        return await process.retool(trajectory)

    async def _component(self, instances: Iterable[str]) -> Isolated:
        """The process in the venv that these resources need."""
        needed = {self._rescorer.implementation(instance) for instance in instances}
        apart = sorted(implementation for implementation in needed if needs_own_venv(implementation))
        if not apart:
            return await self._process(HERE)
        if len(needed) > 1:
            raise CannotVerify(f"its resources need different venvs ({', '.join(sorted(needed))}): one can be asked")
        return await self._process(find_venv(apart[0], kind="resources"))

    def _python(self, trajectory: Trajectory) -> Path | None:
        """The interpreter that the rollout's agents need; None for this one. Raises `CannotVerify`."""
        needed = {
            find_venv(code.implementation)
            for run in trajectory.executions()
            if needs_venv(code := self._here.code_of(trajectory, run))
        }
        if len(needed) > 1:
            raise CannotVerify(
                "its agents need different venvs, and one process can be in one only: verify the one that is called "
                "in a rollout of its own"
            )
        return needed.pop() if needed else None

    async def _process(self, python: Path) -> Isolated:
        if python not in self._there or self._there[python].ended:
            started = await Isolated.start(
                python,
                self._facts,
                self._override,
                self._roots,
                loose=self._loose,
                deadline_s=self._deadline_s,
            )
            self._stack.push_async_callback(started.stop)
            self._there[python] = started
        return self._there[python]


def anonymous(reason: str, rollout_id: str) -> str:
    """The reason in words that are the same for other rollouts."""
    return reason.removeprefix(f"rollout {rollout_id}: ").replace(rollout_id, "…")


class Group(msgspec.Struct, kw_only=True):
    """The rollouts that first depart at one place, or that could not be run for one reason."""

    verdict: str
    where: str
    reason: str
    code: str = ""
    count: int = 0
    examples: list[str] = []


class Summary:
    """Counts verdicts."""

    def __init__(self) -> None:
        self.counts = {"same": 0, "differs": 0, "could not run": 0}
        self._groups: dict[tuple[str, str, str], Group] = {}

    def add(self, verdict: Verdict) -> None:
        """Counts one."""
        self.counts[verdict.verdict] += 1
        if verdict.verdict == "same":
            return
        where, reason = "", anonymous(verdict.reason, verdict.rollout_id)
        if (departure := verdict.departure) is not None:
            where, reason = f"{departure.file}:{departure.line}", _EVENT.sub("an event", departure.reason)
        key = (verdict.verdict, where, reason)
        group = self._groups.setdefault(key, Group(verdict=verdict.verdict, where=where, reason=reason))
        group.count += 1
        group.code = verdict.code
        if len(group.examples) < EXAMPLES:
            group.examples.append(verdict.rollout_id)

    @property
    def groups(self) -> list[Group]:
        """The groups, the largest first."""
        return sorted(self._groups.values(), key=lambda group: -group.count)

    @property
    def exit_code(self) -> int:
        """0: all the same. 1: some differ. 2: some could not be run."""
        return 2 if self.counts["could not run"] else 1 if self.counts["differs"] else 0
