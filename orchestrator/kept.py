"""What do the result files of a run hold that its log does not?

A power cut may take the end of a log, in one partition only, or large data that its events refer to. The files, which
are written anew from the log, may then be all that has a result. Called by `run --resume` and `rebuild` before they
write. It only reads.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from bus import Bus
from bus.headings import headings
from bus.run_folder import FAILURES, ROLLOUTS, read_lines
from contracts.rollouts import RolloutResult
from orchestrator.collect import outcomes_in_log
from orchestrator.results import read_ending


class _Named(msgspec.Struct):
    rollout_id: str


class Kept(NamedTuple):
    """What one file of results holds that its log does not bear out."""

    path: Path
    lost: list[str]
    """The rollouts that have a line, and no end in the log."""
    unread: list[str]
    """Those that have a result in the file, and an end in the log that cannot be read whole any more."""
    damaged: int
    """Lines that cannot be read."""


Readable = Callable[[Bus, str], Awaitable[set[str]]]
"""The rollouts of a run whose results can be had from the log: reads each whole, as long as the files take to write."""


async def by_ends(bus: Bus, run_id: str) -> set[str]:
    """Those whose ends can be read with what they refer to: for who knows what was asked for."""
    return {
        recorded.event.rolloutid
        for partition in range(bus.config.partitions)
        async for recorded in bus.scan(bus.subjects.ended_of(partition, run_id), partition=partition)
        if isinstance(await read_ending(bus, recorded.event), RolloutResult)
    }


async def by_outcomes(bus: Bus, run_id: str) -> set[str]:
    """Those of which all can be read, their requests too."""
    return {done.rollout_id async for done in outcomes_in_log(bus, run_id) if done.reward is not None}


async def kept_of(bus: Bus, run_id: str, folder: Path, readable: Readable | None) -> list[Kept]:
    """Looks for each line of the result files whether its rollout has ended in the log, and can be read, if asked to.

    Raises `BusError` and `OSError`.
    """
    found: list[Kept] = []
    for path in (folder / ROLLOUTS, folder / FAILURES):
        lines = list(read_lines(path, _Named))
        found.append(Kept(path, [line.rollout_id for line in lines if line is not None], [], lines.count(None)))
    rollouts, failures = found
    if not (rollouts.lost or failures.lost):
        return found
    ended = {
        noted.heading.rollout
        for partition in range(bus.config.partitions)
        async for noted in headings(bus, bus.subjects.ended_of(partition, run_id), partition=partition)
    }
    unread: list[str] = []
    if readable is not None and rollouts.lost:
        read = await readable(bus, run_id)
        unread = [rollout for rollout in rollouts.lost if rollout in ended and rollout not in read]
    lost = [[rollout for rollout in kept.lost if rollout not in ended] for kept in found]
    return [rollouts._replace(lost=lost[0], unread=unread), failures._replace(lost=lost[1])]
