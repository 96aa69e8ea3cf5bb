"""What exactly does a trainer ask for, and under which IDs?

The ID of a group follows from run, epoch, agent and task, that of a rollout from its group and its index, so that the
same tasks submitted again, in any order and by any process, name the same rollouts. A task's number follows from agent
and task, for the same reason. Called by `trainer`; it never talks to the log.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sized
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from contracts.ids import RolloutId, rollout_id
from contracts.rollouts import RolloutRequest
from contracts.tasks import Task
from orchestrator.describing import Descriptions
from orchestrator.errors import InputError, Problem, UsageError, nearest
from orchestrator.groups import Member, OpenGroup
from orchestrator.tasks import read_task, sent, tools_for

AnyTask = Mapping[str, Any] | bytes | str | Task
"""A task: its fields, or its line."""

AT_A_TIME: Final = 64
"""Tasks that were submitted before, between two looks at what else is to be done."""
SURELY_REPEATED: Final = 1000
OFTEN_REPEATED: Final = 10
"""An iterator repeats itself that gave so many known tasks, and so many times the groups that there are, in a row."""

_SORTED: Final = msgspec.json.Encoder(order="sorted")
_ID: Final = re.compile(r"(.+)-e(\d+)-([0-9a-f]{16})-(\d+)(?:-a(\d+))?")
_DIGEST: Final = 8
_NUMBER: Final = 52
"""Bits of a task's number: whoever takes all numbers of JSON for floats reads it right too."""


class Asked(NamedTuple):
    """A task that was submitted."""

    where: str
    """`file:line`, or which of those that were submitted it is, from 1."""
    group: str
    """ID of its group."""
    task_index: int
    line: bytes


class Place(NamedTuple):
    """What a rollout ID of a trainer's run says."""

    group: str
    number: int
    """Index in the group."""
    attempt: int


def place_of(run: str, rollout: str) -> Place | None:
    """The place of a rollout in its run; None where it is none of this run's."""
    found = _ID.fullmatch(rollout)
    if found is None or found[1] != run:
        return None
    return Place(f"{run}-e{found[2]}-{found[3]}", int(found[4]), int(found[5] or 0))


def epoch_of(group: str) -> int:
    """The epoch that a group belongs to."""
    return int(group.rpartition("-")[0].rpartition("-e")[2])


def check_size(group: str, known: int, size: int) -> None:
    """Raises `UsageError` where a group that has `known` rollouts is submitted with another size."""
    if known != size:
        raise UsageError(
            f"group {group} was submitted with group_size={known} before, and now with {size}: keep the size, or ask "
            f"for its task in another epoch or run"
        )


async def pass_over(tasks: Iterable[AnyTask], old: int, groups: int) -> None:
    """Goes on to the next of `tasks` behind one that was submitted before, the so-manieth in a row; others run too.

    Raises `UsageError` for an iterator that goes round and round: it adds nothing, without an end.
    """
    if old % AT_A_TIME == 0:
        await asyncio.sleep(0)
    if old > SURELY_REPEATED + OFTEN_REPEATED * groups and not isinstance(tasks, Sized):
        raise UsageError(
            f"the last {old:,} tasks were all submitted before: tasks that come round again add nothing; submit each "
            f"round with an epoch=… of its own"
        )


def member_id(group: str, index: int) -> RolloutId:
    """The rollout ID of a member's first attempt."""
    return rollout_id(f"{group}-{index:02d}")


class Submission:
    """Makes requests of the tasks of one run."""

    def __init__(self, run: str, descriptions: Descriptions) -> None:
        self._run, self._descriptions = run, descriptions
        self._tools: dict[str, msgspec.Raw | None] = {}
        self._sessionless = tuple(n for n, d in descriptions.items() if d.kind == "resources" and not d.stateful)

    def agent(self, name: str | None) -> str:
        """The agent of this name, or the only one; raises `UsageError`."""
        agents = [known for known, description in self._descriptions.items() if description.kind == "agents"]
        if name is None and len(agents) == 1:
            return agents[0]
        if name not in agents:
            raise UsageError(f"name one of the agents: {nearest(name if isinstance(name, str) else '', agents)}")
        return name

    def asked(self, tasks: Iterable[AnyTask], agent: str, epoch: int) -> Iterator[Asked]:
        """The tasks one by one, each with its group; raises `InputError`, `TypeError`."""
        if isinstance(tasks, str | bytes | Mapping):
            raise TypeError("tasks are several: give one alone as [task], and a file as open(…)")
        file = getattr(tasks, "name", None)
        start = f"{file}:" if isinstance(file, str) else "task "
        for number, task in enumerate(tasks, start=1):
            if isinstance(task, str | bytes) and not task.strip():
                continue  # an empty line, as files of tasks have them
            where = f"{start}{number}"
            try:
                line = _line(task)
                digest = blake2b(_SORTED.encode([agent, msgspec.json.decode(line)]), digest_size=_DIGEST)
            except (msgspec.MsgspecError, UnicodeError, TypeError, OverflowError, RecursionError) as error:
                raise bad_task(Problem(where, "", f"is no JSON: {error}")) from error
            index = int.from_bytes(digest.digest(), "big") >> 8 * _DIGEST - _NUMBER
            yield Asked(where, f"{self._run}-e{epoch}-{digest.hexdigest()}", index, line)

    def request(self, group: OpenGroup, asked: Asked) -> RolloutRequest:
        """What the agent is asked, as the first of the group; raises `InputError`."""
        read = read_task("", 0, asked.line)
        if isinstance(read, Problem):
            raise bad_task(read._replace(where=asked.where))
        if group.agent not in self._tools:
            self._tools[group.agent] = tools_for(self._descriptions[group.agent], self._descriptions)
        return RolloutRequest(
            task=msgspec.Raw(sent(read, self._tools[group.agent])),
            agent=group.agent,
            run_id=self._run,
            task_index=group.task_index,
            sessionless=self._sessionless,
            policy_version=group.version,
            group=group.id,
            group_size=len(group.members),
        )


def new_group(
    group: str, *, agent: str, task_index: int, epoch: int, version: int, asked: datetime, size: int
) -> OpenGroup:
    """A group of which nothing has ended."""
    return OpenGroup(
        id=group,
        agent=agent,
        task_index=task_index,
        epoch=epoch,
        version=version,
        asked=asked,
        members=[Member(index=index, rollout=member_id(group, index)) for index in range(size)],
    )


def _line(task: AnyTask) -> bytes:
    if isinstance(task, Task):
        return bytes(task.raw)
    if isinstance(task, str):
        return task.encode()
    return task if isinstance(task, bytes) else msgspec.json.encode(task)


def bad_task(problem: Problem) -> InputError:
    """The error of a task that cannot be asked for."""
    return InputError(str(problem), problems=[problem], total=1)
