"""Does a run balance: is every rollout that was asked for completed, failed, cancelled or in flight, and none twice?

Answers from the log alone, in two passes that keep some hundred bytes a rollout: the requests and ends of the run,
then the subjects of all calls. Called by `jetgym audit` and by tests of what happens when things break. It only reads.

A rollout is in flight while its request waits or is held in the agents' pool. What the pool holds is asked *before* the
log is read: a request is acknowledged after its rollout's end is in the log, so one that was acknowledged then and
shows no end afterwards is lost. For a log whose replicas lag, what looks lost is looked at again.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from typing import Final, Literal

import msgspec

from bus import Bus
from bus.headings import Heading, Noted, heading_of, headings, last_sequence
from bus.overview import SlotState, slot_states
from contracts.deployments import RunStarted
from contracts.events import Recorded
from contracts.ids import ROOT_CALL

Reason = Literal[
    "lost",  # acknowledged in the agents' pool, and never ended
    "unheld",  # one of several of which the pool holds fewer
    "requested_twice",
    "ended_twice",
    "not_requested",  # ended, or called, and never asked for
    "unreadable_request",
    "call_not_open",  # answered twice, or never asked for
]

LOOKS: Final = 3
"""So often, what looks lost is looked at."""
PAUSE_S: Final = 0.5
_EXPLAINED: Final = 1_000
"""So many unbalanced rollouts are looked up among the dead letters."""
_OUTCOMES: Final = ("completed", "failed", "cancelled")

Pools = Mapping[tuple[str, int], SlotState]
"""The slots of the agents' pools in one partition, by instance and slot."""


class Unbalanced(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout that does not balance."""

    rollout: str
    reason: Reason
    message: str


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """What a run's log says."""

    run_id: str
    requested: int
    completed: int
    failed: int
    cancelled: int
    in_flight: int
    """They wait or are held in the agents' pool; none that does not balance is among them."""
    balanced: bool
    planned: int | None
    """Rollouts that the run was going to ask for; None where the log does not say."""
    not_yet_asked: int | None
    """Of these, so many are not asked for."""
    again: int
    """Requests that are new attempts of a rollout that failed; `planned` does not count them."""
    calls: int
    """Calls that the rollouts made, at any depth."""
    open_calls: int
    """Of these, the ones without a reply; their rollouts are in flight, or ended without waiting for it."""
    unbalanced: tuple[Unbalanced, ...]

    @property
    def exists(self) -> bool:
        """Whether the log knows the run at all."""
        return self.planned is not None or self.requested + self.completed + self.failed + self.cancelled > 0


class _Rollout:
    """What was seen of one rollout."""

    __slots__ = ("calls", "ends", "open", "problems", "readable", "requests")

    def __init__(self) -> None:
        self.requests: tuple[tuple[int, str, int], ...] = ()
        """Sequence, instance and slot."""
        self.ends: tuple[str, ...] = ()
        self.readable = False
        self.calls = 0
        self.open: set[str] | None = None
        self.problems: tuple[tuple[Reason, str], ...] = ()

    def ask(self, seq: int, heading: Heading) -> None:
        """A request of it was seen, in either pass: on a replica that lags, the second one may see less."""
        if all(seq != seen for seen, _, _ in self.requests):
            self.requests = (*self.requests, (seq, heading.instance, heading.slot))

    def blame(self, reason: Reason, message: str) -> None:
        if reason not in (found for found, _ in self.problems):
            self.problems = (*self.problems, (reason, message))


async def audit(bus: Bus, run: str) -> Audit:
    """Balances a run; raises `BusError`."""
    planned = await _planned(bus, run)
    found: dict[str, int] = dict.fromkeys(("requested", *_OUTCOMES, "in_flight", "again", "calls", "open_calls"), 0)
    unbalanced: list[Unbalanced] = []
    for partition in range(bus.config.partitions):
        part = _Partition(bus, run, partition)
        await part.read()
        for name, count in part.counts().items():
            found[name] += count
        unbalanced += [problem async for problem in part.problems()]
    ended = sum(found[outcome] for outcome in _OUTCOMES)
    return Audit(
        run_id=run,
        **found,
        balanced=not unbalanced and found["requested"] == ended + found["in_flight"],
        planned=planned,
        not_yet_asked=None if planned is None else max(0, planned - found["requested"] + found["again"]),
        unbalanced=tuple(unbalanced),
    )


async def _planned(bus: Bus, run: str) -> int | None:
    recorded = await bus.last(bus.subjects.deployment("run", run))
    if recorded is None:
        return None
    return msgspec.json.decode(await bus.fetch_data(recorded.event), type=RunStarted).rollouts


class _Partition:
    """One partition's share of a run."""

    def __init__(self, bus: Bus, run: str, partition: int) -> None:
        self._bus, self._run, self._partition = bus, run, partition
        self._start = f"{bus.config.namespace}.{partition}"
        self._rollouts: dict[str, _Rollout] = {}
        self._others: set[str] = set()
        """Rollouts of other runs whose IDs look like this one's."""
        self._again = 0

    async def read(self) -> None:
        """Both passes, up to one sequence."""
        pools = await self._pools()
        last = await last_sequence(self._bus, self._partition)
        if last == 0:
            return
        await self._read_rollouts(last)
        start = self._start
        filters = f"{start}.*.*.*.request.*.*", f"{start}.reply.>", f"{start}.rollout.ended.>"
        async with aclosing(headings(self._bus, *filters, partition=self._partition, last=last)) as found:
            async for noted in found:
                self._note(noted)
        await self._find_lost(pools)

    def counts(self) -> dict[str, int]:
        """What the rollouts add up to."""
        every = self._rollouts.values()
        ends = [end for rollout in every for end in rollout.ends]
        return {
            "requested": sum(len(rollout.requests) for rollout in every),
            **{outcome: ends.count(outcome) for outcome in _OUTCOMES},
            "in_flight": sum(1 for rollout in every if rollout.requests and not rollout.ends and not rollout.problems),
            "again": self._again,
            "calls": sum(rollout.calls for rollout in every),
            "open_calls": sum(len(rollout.open or ()) for rollout in every),
        }

    async def problems(self) -> AsyncIterator[Unbalanced]:
        """Each rollout that does not balance, with the reason."""
        looked = 0
        for name, rollout in self._rollouts.items():
            for reason, message in rollout.problems:
                told = message
                if looked < _EXPLAINED:
                    looked += 1
                    told += await self._letter(name)
                yield Unbalanced(rollout=name, reason=reason, message=told)

    # --- first pass: the run's own requests and ends, with what they hold -------------------------------------

    async def _read_rollouts(self, last: int) -> None:
        asked = f"{self._start}.agents.*.*.request.*.{ROOT_CALL}"
        filters = asked, self._bus.subjects.ended_of(self._partition, self._run)
        async with aclosing(self._bus.scan(*filters, partition=self._partition)) as found:
            async for recorded in found:
                if recorded.seq > last:
                    return
                heading = heading_of(recorded.subject)
                if heading.form == "ended":
                    rollout = self._rollouts.setdefault(heading.rollout, _Rollout())
                    rollout.ends = (*rollout.ends, _outcome(recorded))
                elif recorded.event.replyto == self._bus.subjects.ended(self._run, heading.rollout):
                    rollout = self._rollouts.setdefault(heading.rollout, _Rollout())
                    rollout.readable = True
                    rollout.ask(recorded.seq, heading)
                    self._again += bool(recorded.event.causationid)
                elif heading.rollout.startswith(f"{self._run}-"):
                    self._others.add(heading.rollout)

    # --- second pass: every subject --------------------------------------------------------------------------

    def _note(self, noted: Noted) -> None:
        heading = noted.heading
        rollout = self._rollouts.get(heading.rollout)
        if rollout is None:
            ours = heading.rollout.startswith(f"{self._run}-") and heading.rollout not in self._others
            if not ours or heading.form == "ended":
                return
            rollout = self._rollouts[heading.rollout] = _Rollout()
        if heading.form == "ended":
            if heading.run != self._run:
                rollout.blame("ended_twice", f"it also ended as a rollout of run {heading.run}")
        elif heading.key == ROOT_CALL:
            rollout.ask(noted.seq, heading)
        elif heading.form == "request":
            rollout.calls += 1
            rollout.open = rollout.open or set()
            rollout.open.add(heading.key)
        elif rollout.open is not None and heading.key in rollout.open:
            rollout.open.remove(heading.key)
            rollout.open = rollout.open or None
        else:
            rollout.blame("call_not_open", f"call {heading.key} was answered twice, or answered and never asked for")

    # --- what is lost ----------------------------------------------------------------------------------------

    async def _find_lost(self, pools: Pools) -> None:
        for rollout in self._rollouts.values():
            if not rollout.requests:
                rollout.blame("not_requested", "it ended, or made calls, and was never asked for")
            elif not (rollout.readable or rollout.ends):
                rollout.blame("unreadable_request", "its request cannot be read, so no worker can take it or end it")
            elif len(rollout.requests) > 1:
                instances = " and ".join(sorted(instance for _, instance, _ in rollout.requests))
                rollout.blame("requested_twice", f"it was asked of {instances}")
            if len(rollout.ends) > 1:
                rollout.blame("ended_twice", f"it ended as {' and as '.join(rollout.ends)}")
        open_now = {
            name: rollout
            for name, rollout in self._rollouts.items()
            if rollout.requests and not rollout.ends and not rollout.problems
        }
        lost = dict(_lost(open_now, pools))
        for _ in range(LOOKS - 1):
            if not lost:
                return
            await asyncio.sleep(PAUSE_S)
            pools = await self._pools()
            still = {name: open_now[name] for name in lost if not await self._ended_since(name, open_now[name])}
            lost = dict(_lost(still, pools))
        for name, (reason, message) in lost.items():
            open_now[name].blame(reason, message)

    async def _ended_since(self, name: str, rollout: _Rollout) -> bool:
        recorded = await self._bus.last(self._bus.subjects.ended(self._run, name))
        if recorded is not None:
            rollout.ends = (_outcome(recorded),)
        return recorded is not None

    async def _pools(self) -> Pools:
        states = await slot_states(self._bus, self._partition)
        return {(state.instance, state.slot): state for state in states if state.kind == "agents"}

    async def _letter(self, rollout: str) -> str:
        recorded = await self._bus.last(f"{self._start}.dead.*.*.{rollout}.*")
        return "" if recorded is None else f"; dead letter {self._partition}-{recorded.seq}"


def _lost(rollouts: Mapping[str, _Rollout], pools: Pools) -> Iterator[tuple[str, tuple[Reason, str]]]:
    """Those of these rollouts, none of which has ended, that their pools do not hold."""
    taken: dict[tuple[str, int], list[str]] = {}
    for name, rollout in rollouts.items():
        ((seq, instance, slot),) = rollout.requests
        state = pools.get((instance, slot))
        if state is None or seq > state.delivered:
            continue  # it waits
        if seq <= state.settled:
            yield name, ("lost", f"the pool of {instance} is done with its request, and it has not ended")
        else:
            taken.setdefault((instance, slot), []).append(name)
    for (instance, slot), names in taken.items():
        held = pools[instance, slot].held
        if len(names) > held:
            message = f"of {len(names)} such rollouts the pool of {instance} holds {held}; it does not say which"
            for name in names:
                yield name, ("unheld", message)


def _outcome(recorded: Recorded) -> str:
    return recorded.event.type.rpartition(".")[2]
