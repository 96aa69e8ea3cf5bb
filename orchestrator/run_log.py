"""How does a trainer's picture of its run come from the log, and get into it?

Reads what a run has asked for and what has ended, asks for groups, and hears as they come the ends, the groups that
another trainer asks for, and that the run was cancelled. Everything that `groups` holds can be read anew: a trainer
that starts again knows what the one before knew. Called by `trainer`.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from secrets import token_hex
from typing import Final, NoReturn

import msgspec
import structlog

from bus import Bus, Conflict
from bus.errors import BlobLost, Unreadable
from bus.headings import headings, last_sequence
from components.workers.cancellations import cancelled_because, until_cancelled
from components.workers.ends import end_unasked
from contracts.events import Event, Outcome, Recorded
from contracts.ids import ROOT_CALL, RolloutId, attempt_id
from contracts.rollouts import RolloutFailure, RolloutRequest, RolloutStats, counted
from orchestrator.attempts import NotAgain, ask_again, give_up, request_of_rollout
from orchestrator.errors import OrchestratorError, RunCancelled
from orchestrator.groups import End, Groups, Member, OpenGroup
from orchestrator.requests import request_if_readable
from orchestrator.settings import RetrySettings
from orchestrator.submission import Place, check_size, epoch_of, member_id, new_group, place_of

READERS: Final = 32
"""Rollouts that are looked up in the log at once."""


class _Completed(msgspec.Struct):
    reward: float
    stats: RolloutStats | None = None


_COMPLETED: Final = msgspec.json.Decoder(_Completed)
_FAILED: Final = msgspec.json.Decoder(RolloutFailure)
_log = structlog.get_logger("run_log")


class RunLog:
    """One run in the log."""

    def __init__(
        self,
        bus: Bus,
        run: str,
        groups: Groups,
        retry: RetrySettings,
        changed: Callable[[], None],
        *,
        models: Collection[str],
    ) -> None:
        """`changed` is called whenever a rollout has ended, or another trainer has asked for a group.

        `models` are the instances that are trained.
        """
        self._bus, self._run, self._models = bus, run, models
        self._groups, self._retry, self._changed = groups, retry, changed
        self._next: list[int] = []
        self._opening: dict[str, list[Event]] = {}
        """Groups that were just heard of, each with the ends that are to be heard once it is open."""

    async def read(self, consumed: set[str]) -> None:
        """Learns what is in the log. What a trainer was killed over, the rest of a group, is asked for.

        `consumed` is what the feed is done with: groups, or rollouts by the ID of their first attempt.
        """
        begun = {self._group_of(name): 0 for name in consumed}
        self._groups.sizes |= begun
        asked: dict[str, dict[int, int]] = {}
        """Of each group the latest attempt of each index."""
        ended: set[str] = set()
        for partition in range(self._bus.config.partitions):
            last = await last_sequence(self._bus, partition)
            self._next.append(last + 1)
            ends = self._bus.subjects.ended_of(partition, self._run)
            async for noted in headings(self._bus, self._requests(partition), ends, partition=partition, last=last):
                rollout = noted.heading.rollout
                if (place := place_of(self._run, rollout)) is None:
                    continue
                sizes = self._groups.sizes
                sizes[place.group] = max(sizes.get(place.group, 0), place.number + 1)
                if place.group in consumed:
                    continue
                if noted.heading.form == "ended":
                    ended.add(rollout)
                else:
                    attempts = asked.setdefault(place.group, {})
                    attempts[place.number] = max(place.attempt, attempts.get(place.number, 0))
        places = asyncio.Semaphore(READERS)

        async def restore(group: str, attempts: dict[int, int]) -> list[Event]:
            async with places:
                try:
                    return await self._restore(group, attempts, ended, consumed)
                except NotAgain as error:  # no request of it can be read: it is known when it is submitted again
                    _log.warning("group_not_known", group=group, why=str(error))
                    if group not in begun:
                        del self._groups.sizes[group]
                    return []

        found = await asyncio.gather(*(restore(group, attempts) for group, attempts in asked.items()))
        for event in sorted((event for events in found for event in events), key=lambda event: event.time):
            await self._hear(event)

    def by_size(self, names: Iterable[str]) -> Counter[int]:
        """So many rollouts are what a feed's records name, by the size of their group."""
        found: Counter[int] = Counter()
        for name in names:
            group = self._group_of(name)
            size = self._groups.sizes[group] or 1
            found[size] += size if name == group else 1
        return found

    def _group_of(self, name: str) -> str:
        """The group of what a feed's records name: a group, or a rollout."""
        place = place_of(self._run, name)
        return name if place is None else place.group

    async def _restore(self, name: str, attempts: dict[int, int], ended: set[str], consumed: set[str]) -> list[Event]:
        """Opens a group, if not all of it is consumed; returns the ends of its rollouts."""
        recorded, request = await self._request_of(name, attempts)
        if name in self._groups.open:
            return []  # it was submitted here meanwhile
        group = new_group(
            name,
            agent=request.agent,
            task_index=request.task_index,
            epoch=epoch_of(name),
            version=request.policy_version or 0,
            asked=recorded.event.time,
            size=max(request.group_size, *(index + 1 for index in attempts)),
        )
        for member in group.members:
            member.gone = member.taken = group.first_id(member) in consumed
            member.rollout = _attempt(name, member.index, attempts.get(member.index, 0))
        if all(member.gone for member in group.members):
            return []
        self._groups.add(group)
        missing = [member for member in group.members if member.index not in attempts]
        first = msgspec.structs.replace(request, attempt=0, parent="")
        await asyncio.gather(*(self._ask(group, member, first) for member in missing))
        ends = [self._bus.subjects.ended(self._run, m.rollout) for m in group.members if m.rollout in ended]
        return [found.event for subject in ends if (found := await self._bus.last(subject)) is not None]

    async def _request_of(self, name: str, attempts: dict[int, int]) -> tuple[Recorded, RolloutRequest]:
        """Of a group's rollouts the first that can be read; raises `NotAgain`, `BusError`."""
        (index, attempt), *others = sorted(attempts.items())
        try:
            return await request_of_rollout(self._bus, _attempt(name, index, attempt))
        except NotAgain:
            if not others:
                raise
        return await self._request_of(name, dict(others))

    async def ask(self, group: OpenGroup, request: RolloutRequest) -> None:
        """Asks for all rollouts of a group that is registered already; raises `UsageError`, `BusError`.

        Who has asked for the first one has decided how many there are.
        """
        first, *others = group.members
        await self._ask(group, first, request)
        await asyncio.gather(*(self._ask(group, member, request) for member in others))

    async def _ask(self, group: OpenGroup, member: Member, request: RolloutRequest) -> None:
        bus, rollout = self._bus, member.rollout
        event = bus.event(
            type="rollout.requested",
            subject=bus.subjects.request("agents", request.agent, 1, rollout, ROOT_CALL),
            data=msgspec.json.encode(msgspec.structs.replace(request, rollout_index=member.index)),
            rolloutid=rollout,
            callkey=ROOT_CALL,
            replyto=bus.subjects.ended(self._run, rollout),
            traceparent=f"00-{token_hex(16)}-{token_hex(8)}-01",
        )
        try:
            await bus.publish(event)
        except Conflict as conflict:  # it was asked for before, perhaps at an older version
            await self._take_over(group, member, conflict.stored)
        except Unreadable as held:
            await end_unasked(bus, event, held)

    async def _take_over(self, group: OpenGroup, member: Member, stored: Recorded) -> None:
        before = await request_if_readable(self._bus, stored.event)
        if before is not None:
            check_size(group.id, before.group_size, len(group.members))
            group.version = min(group.version, before.policy_version or 0)
        found = await self._bus.last(self._bus.subjects.ended(self._run, member.rollout))
        if found is not None:
            await self._hear(found.event)

    async def follow(self) -> None:
        """Hears what ends and what others ask for, for ever; raises `BusError` when the log is lost."""
        try:
            async with asyncio.TaskGroup() as readers:
                for partition, start in enumerate(self._next):
                    readers.create_task(self._follow_ends(partition, start))
                    readers.create_task(self._follow_requests(partition, start))
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    async def cancelled(self) -> RunCancelled | None:
        """Whether the run was cancelled, by whomever: what is to be raised then."""
        reason = await cancelled_because(self._bus, self._run)
        return None if reason is None else RunCancelled(self._run, reason)

    async def until_cancelled(self) -> NoReturn:
        """Waits for it; raises `RunCancelled`, `BusError`."""
        raise RunCancelled(self._run, await until_cancelled(self._bus, self._run))

    async def _follow_ends(self, partition: int, start: int) -> None:
        ends = self._bus.subjects.ended_of(partition, self._run)
        async for recorded in self._bus.scan(ends, partition=partition, start=start, follow=True):
            event = recorded.event
            if (place := place_of(self._run, event.rolloutid)) is not None:
                await self._discover(place, event)
                await self._hear(event)

    async def _follow_requests(self, partition: int, start: int) -> None:
        requests = self._requests(partition)
        async for noted in headings(self._bus, requests, partition=partition, start=start, follow=True):
            if (place := place_of(self._run, noted.heading.rollout)) is not None:
                await self._discover(place)

    def _requests(self, partition: int) -> str:
        return f"{self._bus.config.namespace}.{partition}.agents.*.*.request.*.{ROOT_CALL}"

    async def _discover(self, place: Place, *ends: Event) -> None:
        """Opens the group of a rollout that was heard of, if it is not known: another trainer asks for it.

        What is not asked for yet of it is: the other one may have died over it.
        """
        if place.group in self._groups.sizes or place.group in self._opening:
            return
        early = self._opening[place.group] = list(ends)
        try:
            early += await self._restore(place.group, {place.number: place.attempt}, set(), set())
        except OrchestratorError as error:
            _log.warning("group_not_known", group=place.group, why=str(error))
        finally:
            del self._opening[place.group]
        for event in early:
            await self._hear(event)
        self._changed()

    async def _hear(self, event: Event) -> None:
        place = place_of(self._run, event.rolloutid)
        if place is not None and place.group in self._opening:
            self._opening[place.group].append(event)
            return
        group = self._groups.open.get(place.group) if place is not None else None
        if place is None or group is None or place.number >= len(group.members):
            return
        member = group.members[place.number]
        if member.end is not None or member.rollout != event.rolloutid:
            return
        end = await self._end(event)
        if member.end is not None or member.rollout != event.rolloutid:
            return  # it was heard elsewhere while its data was fetched
        if event.type == "rollout.failed" and await self._again(member, place.attempt, end, event):
            return
        self._groups.end(group, member, end)
        self._changed()

    async def _end(self, event: Event) -> End:
        """How it ended; what cannot be read is a failure too, since it must end."""
        try:
            end = _read_end(event, await self._bus.fetch_data(event))
        except (msgspec.DecodeError, UnicodeDecodeError, BlobLost) as error:
            return End("rollout.failed", None, "poison", f"its end cannot be read: {error}", None, event.time)
        return end if end.stats is None else end._replace(trained=counted(end.stats, self._models))

    async def _again(self, member: Member, attempt: int, end: End, event: Event) -> bool:
        """Asks again for a rollout that failed, if it is to be."""
        if self._retry.attempts == 1 or end.error not in self._retry.on:
            return False
        if attempt + 1 >= self._retry.attempts:
            told = f"failed {attempt + 1} times, at last with {end.error}: {end.message}"
            await give_up(self._bus, event.rolloutid, told)
            return False
        failed = member.rollout
        first = failed.removesuffix(f"-a{attempt}") if attempt else failed
        member.rollout = attempt_id(first, attempt + 1)
        await ask_again(self._bus, failed, event.id)
        return True


def _attempt(group: str, index: int, attempt: int) -> RolloutId:
    first = member_id(group, index)
    return attempt_id(first, attempt) if attempt else first


def _read_end(event: Event, data: bytes) -> End:
    if event.type == "rollout.completed":
        done = _COMPLETED.decode(data)
        return End("rollout.completed", float(done.reward), "", "", done.stats, event.time)
    failure = _FAILED.decode(data)
    outcome: Outcome = "rollout.cancelled" if event.type == "rollout.cancelled" else "rollout.failed"
    return End(outcome, None, failure.kind, failure.message, failure.stats, event.time)


def now() -> datetime:
    """The time of what is asked for now."""
    return datetime.now(UTC)
