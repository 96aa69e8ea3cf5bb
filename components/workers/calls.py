"""How do an agent's calls get into the log, and how do its timers fire?

Called by the agent worker for every call that agent code makes. It knows nothing of executions beyond what they still
wait for, and never decides what becomes of a rollout.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple

import structlog

from bus import Bus, BusError, Conflict, PayloadTooLarge
from components.durable import Call
from components.workers.answers import answer_to
from components.workers.rollout import Rollout
from contracts.errors import InvalidName
from contracts.events import Event

Run = Callable[[Rollout, Coroutine[None, None, None]], asyncio.Future[None]]
"""Runs a step of a rollout on its own; what it raises is taken care of."""


class Unsendable(Exception):
    """The agent made a call that cannot be made."""


class Posted(NamedTuple):
    """A request on its way into the log."""

    call: Call
    event: Event
    stored: asyncio.Future[int]


OnSent = Callable[[Rollout, Posted | None], None]
"""Told of each call that is to be `settle`d; of one that could not be sent without it."""


class Calls:
    """The calls of all rollouts of one worker."""

    def __init__(self, bus: Bus, worker: str, slots_of: Mapping[str, int], run: Run, on_sent: OnSent) -> None:
        self._bus, self._worker, self._slots_of, self._run, self._on_sent = bus, worker, slots_of, run, on_sent
        self._log = structlog.get_logger()

    def send(self, rollout: Rollout, call: Call) -> asyncio.Future[Any]:
        """Stores a request; `on_sent` is told when it is done.

        It has no task of its own where it waits for nothing but its ack: a worker has tens of thousands on the way.
        """
        try:
            event = self._request(rollout, call)
            stored = self._bus.post_at_once(event)
        except (InvalidName, PayloadTooLarge, Unsendable, BusError):
            stored = None  # `_send_later` says what is wrong, when whoever made the call has made all of them
        if stored is None:
            return self._run(rollout, self._send_later(rollout, call))
        posted = Posted(call, event, stored)
        stored.add_done_callback(lambda _: self._on_sent(rollout, posted))
        return stored

    async def _send_later(self, rollout: Rollout, call: Call) -> None:
        posted = None
        try:
            event = self._request(rollout, call)
            posted = Posted(call, event, await self._bus.post(event))
            await asyncio.wait([posted.stored])
        except (InvalidName, PayloadTooLarge) as error:
            raise Unsendable(f"call {call.key}: {error}") from error
        finally:
            self._on_sent(rollout, posted)

    def settle(self, rollout: Rollout, posted: Posted) -> bool:
        """Arms the timer of a request that is stored; False if another worker has written this call."""
        call, event = posted.call, posted.event
        try:
            posted.stored.result()
        except Conflict as conflict:
            there = conflict.stored.event
            if there.replyto != event.replyto:
                self._log.warning("call.written_by_another", rollout=rollout.id, call=call.key, by=there.source)
                return False
        if call.kind == "timers":
            self.arm(rollout, event, call.delay)
        return True

    def _request(self, rollout: Rollout, call: Call) -> Event:
        fork = rollout.request.fork
        instance = call.instance if fork is None else fork.routed.get(call.instance, call.instance)
        if call.kind != "timers" and instance not in self._slots_of:
            known = ", ".join(sorted(self._slots_of))
            raise Unsendable(f"call {call.key}: this deployment has no instance {instance!r}; it has: {known}")
        subjects = self._bus.subjects
        slots = self._slots_of.get(instance, 1)
        return self._bus.event(
            type=call.type,
            subject=subjects.request(call.kind, instance, slots, rollout.id, call.key),
            data=call.data,
            rolloutid=rollout.id,
            callkey=call.key,
            afterkey=call.after,
            replyto=subjects.reply(self._worker, rollout.id, call.key),
            causationid=call.cause,
            traceparent=rollout.event.traceparent,
            policy=rollout.asked_at if call.kind in ("models", "agents") else None,
        )

    # --- timers ------------------------------------------------------------------------------------------------

    def arm(self, rollout: Rollout, request: Event, delay: float) -> None:
        """Has the timer fire after `delay` seconds: its reply goes into the log, like any other."""
        if rollout.ended or rollout.execution is None or request.callkey not in rollout.execution.outstanding:
            return
        if rollout.timers is None:
            rollout.timers = {}
        loop = asyncio.get_running_loop()
        rollout.timers[request.callkey] = loop.call_later(max(0.0, delay), self._fire, rollout, request)

    def disarm(self, rollout: Rollout) -> None:
        """Drops the timers that the agent does not wait for any more."""
        if rollout.timers and rollout.execution is not None:
            outstanding = rollout.execution.outstanding
            for key in [key for key in rollout.timers if key not in outstanding]:
                rollout.timers.pop(key).cancel()

    def _fire(self, rollout: Rollout, request: Event) -> None:
        if rollout.timers is not None:
            rollout.timers.pop(request.callkey, None)
        self._run(rollout, self._fired(request))

    async def _fired(self, request: Event) -> None:
        try:
            await self._bus.publish(answer_to(self._bus, request, "timer.replied", b"null"))
        except Conflict:
            self._log.info("timer.fired_already", rollout=request.rolloutid, call=request.callkey)
