"""What does the log say of a session: what is it made from again, and may a call be applied to it yet?

Called by the resources worker where the session that it has, or has not, is not the one that the call is for. Calls of
a session are applied in the order in which they were asked, so one waits while another before it has no answer, be that
on its way into the log, in the hands of a worker that died, or on its way back. It writes nothing and applies nothing.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from bus import Bus
from components.durable.history import SUB_CALL
from components.durable.order import in_order
from components.resources.runtime import History, Runtime
from components.workers.callee import CallRefused
from components.workers.rollout import prefix_of
from contracts.events import CallError, Event, Recorded
from contracts.rollouts import SessionSeed, SessionSnapshot, ToolCall, ToolOutput

_SEED = msgspec.json.Decoder(SessionSeed)
_TOOL_CALL = msgspec.json.Decoder(ToolCall)
_SEEDED = msgspec.json.Decoder(SessionSnapshot | None)
_TOOL_OUTPUT = msgspec.json.Decoder(ToolOutput)


class Early(Exception):
    """The call that was asked before, under this key, has no answer yet."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"call {key} was asked before and has no answer")


class _Asked(NamedTuple):
    before: Sequence[Event]
    """What was asked on the session before, in the order in which it was."""
    answers: dict[str, Recorded]
    """By subject."""


class SessionLog:
    """The recorded calls of one resources instance's sessions."""

    def __init__(self, bus: Bus, runtime: Runtime) -> None:
        self._bus, self._runtime = bus, runtime

    async def check(self, request: Event) -> None:
        """Raises `Early` if a call before this one is to be applied first, `CallRefused` if it never will be."""
        await self._asked(request)

    async def history(self, request: Event) -> History:
        """The seed and the answered tool calls since, in the order in which they were asked; raises as `check`."""
        asked, answers = await self._asked(request)
        before = [event for event in asked if _replied(answers, event)]
        seeded = max((place for place, event in enumerate(before) if event.type == "session.requested"), default=None)
        if seeded is None:
            message = f"{request.type} before its session was seeded: the agent must call seed_session first"
            raise CallRefused(CallError(kind="bad_request", message=message))
        seed = before[seeded]
        task = _SEED.decode(await self._bus.fetch_data(seed)).task
        tools = [event for event in before[seeded:] if event.type == "tool.requested"]
        calls = [_TOOL_CALL.decode(await self._bus.fetch_data(event)) for event in tools]
        on_it = [event for event, call in zip(tools, calls, strict=True) if self._runtime.takes_session(call)]
        applied = [seed, *on_it]
        if self._runtime.takes_snapshots:
            snapshot = await self._last_snapshot([answers[event.replyto] for event in applied])
            return History(task, calls, snapshot, last=applied[-1].callkey)
        replies = [answers[event.replyto].event for event in tools]
        outputs = [_TOOL_OUTPUT.decode(await self._bus.fetch_data(reply)) for reply in replies]
        return History(task, calls, last=applied[-1].callkey, outputs=outputs)

    def ordered(self, request: Event, call: ToolCall | None) -> bool:
        """Whether a request, of a tool with this call, is one of those that are applied to its session in order."""
        if call is not None:
            return self._runtime.takes_session(call)
        return request.type == "session.requested" or self._runtime.verifies_session

    async def takes_session(self, request: Event) -> bool:
        """`ordered`, of what is in the log."""
        if request.type != "tool.requested":
            return self.ordered(request, None)
        try:
            return self.ordered(request, _TOOL_CALL.decode(await self._bus.fetch_data(request)))
        except msgspec.DecodeError:
            return False

    async def _asked(self, request: Event) -> _Asked:
        recorded = await self._bus.history(request.rolloutid)
        answers = {entry.subject: entry for entry in recorded if not entry.event.replyto}
        asked = [entry.event for entry in recorded if entry.event.replyto and _on_one_session(entry.event, request)]
        if request.afterkey is None:
            return _Asked(in_order((event for event in asked if event.subject != request.subject), _same), answers)
        ordered = in_order(
            asked if any(event.subject == request.subject for event in asked) else [*asked, request], _same
        )
        place = next(place for place, event in enumerate(ordered) if event.subject == request.subject)
        before = ordered[:place]
        if (missing := await self._missing(request, before, recorded, answers)) is not None:
            if _ended(request, recorded):
                message = f"the rollout ended before call {missing}, which was asked before this one, was answered"
                raise CallRefused(CallError(kind="cancelled", message=message))
            raise Early(missing)
        return _Asked(before, answers)

    async def _missing(
        self, request: Event, before: Sequence[Event], recorded: Sequence[Recorded], answers: dict[str, Recorded]
    ) -> str | None:
        """Key of a call that is to be applied before this one."""
        stored = {entry.event.callkey for entry in recorded}
        for event in (*before, request):
            if event.afterkey and event.afterkey not in stored:
                return event.afterkey
        for event in before:
            if event.replyto not in answers and await self.takes_session(event):
                return event.callkey
        return None

    async def _last_snapshot(self, replies: list[Recorded]) -> SessionSnapshot | None:
        last = max(replies, key=lambda entry: entry.seq).event
        data = await self._bus.fetch_data(last)
        return _SEEDED.decode(data) if last.type == "session.replied" else _TOOL_OUTPUT.decode(data).snapshot


def session_of(request: Event) -> str:
    """A session belongs to a rollout, or to the nested rollout whose agent calls."""
    nested = _caller(request)
    return f"{request.rolloutid}/{nested}" if nested else request.rolloutid


def _caller(request: Event) -> str:
    """Key of the call whose agent calls; empty for the rollout's own."""
    return prefix_of(request.callkey).removesuffix(SUB_CALL)


def _on_one_session(event: Event, request: Event) -> bool:
    """Whether both are addressed to one kind and instance, and asked by one agent."""
    return event.subject.split(".")[2:4] == request.subject.split(".")[2:4] and _caller(event) == _caller(request)


def _replied(answers: dict[str, Recorded], event: Event) -> bool:
    answer = answers.get(event.replyto)
    return answer is not None and answer.event.type.endswith(".replied")


def _ended(request: Event, recorded: Sequence[Recorded]) -> bool:
    """Whether nobody asks for what is missing any more: the rollout has ended, or the nested one is answered."""
    caller = _caller(request)
    return any(
        ".rollout.ended." in entry.subject or (entry.event.callkey == caller and entry.subject.split(".")[2] == "reply")
        for entry in recorded
    )


def _same(event: Event) -> Event:
    return event
