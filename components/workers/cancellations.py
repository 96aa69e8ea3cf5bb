"""What has been cancelled, and how does a worker hear of it?

A cancellation is an event of each partition that it concerns: it names a run, or one rollout of it with all its
attempts. Every worker reads those that are in the log before it takes anything, and hears the others as they come; so
whatever it takes, or holds, it can ask here. It never ends anything itself. Used by all kinds of worker, and by
whoever cancels (`cancel`).
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from bus import Bus, Conflict
from bus.subjects import NO_ROLLOUT
from contracts.events import CallError, Recorded
from contracts.rollouts import CancelRequest

REMEMBERED: Final = 65_536
"""Cancelled rollouts that a worker keeps in mind; of runs it forgets none."""

_CANCEL: Final = msgspec.json.Decoder(CancelRequest)


class Cancellations:
    """What one worker knows to be cancelled, with the reasons."""

    def __init__(self, bus: Bus, hear: Callable[[str], None]) -> None:
        """`hear` is told of each cancellation that comes after `start`: the rollout's ID, empty for a run."""
        self._bus, self._hear = bus, hear
        self._next: dict[int, int] = {}
        """By partition, the sequence from which on there may be news."""
        self._runs: dict[str, str] = {}
        self._rollouts: dict[str, str] = {}
        self._forgot = False
        """Rollouts have been forgotten, whose run is not cancelled."""

    async def start(self) -> None:
        """Learns what is in the log."""
        for partition in range(self._bus.config.partitions):
            async for recorded in self._bus.scan(self._bus.subjects.cancels_of(partition), partition=partition):
                self._learn(partition, recorded)

    async def follow(self) -> None:
        """Learns what comes; never returns."""
        await asyncio.gather(*(self._follow(partition) for partition in range(self._bus.config.partitions)))

    async def _follow(self, partition: int) -> None:
        subject, start = self._bus.subjects.cancels_of(partition), self._next.get(partition, 1)
        async for recorded in self._bus.scan(subject, partition=partition, start=start, follow=True):
            if (rollout := self._learn(partition, recorded)) is not None:
                self._hear(rollout)

    def _learn(self, partition: int, recorded: Recorded) -> str | None:
        """The rollout's ID, empty for a run; None where it is no news."""
        self._next[partition] = recorded.seq + 1
        reason = _reason(recorded)
        *_, run, rollout = recorded.subject.split(".")
        known = run in self._runs
        if rollout == NO_ROLLOUT:
            self._runs[run] = reason
            return None if known else ""
        self._rollouts[rollout] = reason
        if len(self._rollouts) > REMEMBERED:
            del self._rollouts[next(iter(self._rollouts))]
            self._forgot = self._forgot or not known
        return rollout

    def of(self, *rollouts: str, run: str = "") -> str | None:
        """Why one of these rollouts, or the run, was cancelled; None if they are not, as far as is known here."""
        found = (self._rollouts[rollout] for rollout in rollouts if rollout in self._rollouts)
        return next(found, self._runs.get(run))

    async def surely_of(self, *rollouts: str, run: str) -> str | None:
        """`of`, and the log is asked where something was forgotten."""
        reason = self.of(*rollouts, run=run)
        if reason is None and self._forgot:
            for rollout in filter(None, rollouts):
                recorded = await self._bus.last(self._bus.subjects.cancel(run, rollout))
                if recorded is not None:
                    return _reason(recorded)
        return reason


async def cancel(bus: Bus, run: str, rollout: str, reason: str) -> bool:
    """Has a rollout and its further attempts end as cancelled, where it has not ended; False if it was said before."""
    return await _say(bus, bus.subjects.cancel(run, rollout), run, reason, rollout)


async def cancel_run(bus: Bus, run: str, reason: str) -> bool:
    """Has all rollouts of a run end as cancelled that have not ended; False if it was said before."""
    partitions = range(bus.config.partitions)
    said = [await _say(bus, bus.subjects.cancel_run(number, run), run, reason, "") for number in partitions]
    return any(said)


async def cancelled_because(bus: Bus, run: str, *rollouts: str) -> str | None:
    """Why a run, or one of these rollouts of it, was cancelled; None if none was."""
    for subject in (bus.subjects.cancel_run(0, run), *(bus.subjects.cancel(run, rollout) for rollout in rollouts)):
        if (recorded := await bus.last(subject)) is not None:
            return _reason(recorded)
    return None


async def until_cancelled(bus: Bus, run: str) -> str:
    """Waits until a run is cancelled; returns why. Raises `BusError`."""
    async for recorded in bus.scan(bus.subjects.cancel_run(0, run), follow=True):
        return _reason(recorded)
    raise AssertionError("what is followed does not end")


def cancelled(reason: str) -> CallError:
    """The error of a call, or of a rollout, that was cancelled."""
    return CallError(kind="cancelled", message=reason)


def _reason(recorded: Recorded) -> str:
    try:
        return _CANCEL.decode(recorded.event.data).reason
    except msgspec.DecodeError:
        return "it was cancelled"


async def _say(bus: Bus, subject: str, run: str, reason: str, rollout: str) -> bool:
    data = msgspec.json.encode(CancelRequest(run_id=run, reason=reason))
    event = bus.event(type="cancel.requested", subject=subject, data=data, rolloutid=rollout)
    with suppress(Conflict):
        await bus.publish(event)
        return True
    return False
