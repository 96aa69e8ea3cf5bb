"""What does a fork of a rollout share with it, and what does it ask for?

Called by `fork`, which writes the events that are made here, and by `whatif`, which only re-executes them. Pure.

What is shared are calls that were answered before the point, with all that was asked under them. They get the fork's
rollout ID, subjects and event IDs of their own, and keep their times and what they say. A call that was made before the
point and not answered is made again by the agent's code. Then comes the rollout's request, so that whoever takes it
finds all of it.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from secrets import token_hex
from typing import Final

import msgspec

from bus import Subjects
from components.durable.history import SUB_CALL
from contracts.codec import encode
from contracts.events import NOTHING, SAID_ELSEWHERE, Event, Recorded
from contracts.ids import ROOT_CALL
from contracts.rollouts import Fork, RolloutRequest
from replay.edits import Edit, edited_reply, edited_task
from replay.errors import Misused
from replay.payloads import Heads
from replay.points import Point
from replay.trajectory import Call, Trajectory, by_its_code

_REQUEST: Final = msgspec.json.Decoder(RolloutRequest)


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be another in a fork; by default nothing."""

    edit: Edit = Edit()
    agent: str = ""
    """Name of the instance that runs it; empty: the same."""
    routed: Mapping[str, str] = {}
    """Instances that are called in place of others."""
    seed: str = ""
    """What randomness is seeded with after the point; empty: the fork's own rollout ID."""


class Plan:
    """A fork of one rollout at one point."""

    def __init__(self, parent: Trajectory, at: Point, changes: Changes) -> None:
        """Captures that are not among the blobs of `parent` are not in the fork: its code needs none.

        Raises `Misused`.
        """
        self.parent, self.changes = parent, changes
        self._target = _target(at, changes.edit)
        self._whole = at.seq is None and by_its_code(parent.outcome)
        """Whether it is the identical trajectory, with what was open when its code ended."""
        if self._target is None:
            self._before = at.seq
        else:
            assert self._target.replied is not None
            self._before = self._target.replied.seq
        own = [call for call in parent.calls.values() if SUB_CALL not in call.key]
        self.shared = [call for call in own if self._is_shared(call)]
        """The calls of the rollout's own agent that are shared, in the order in which they were asked."""

    @property
    def before(self) -> int:
        """Sequence of the parent's first event that is not shared; 0 for its request."""
        return self._before if self._before is not None else self.parent.events[-1].seq + 1

    @property
    def agent(self) -> str:
        """Name of the instance that is asked."""
        return self.changes.agent or self.parent.requested.subject.split(".")[3]

    def request(self, rollout_id: str, run_id: str, index: int = 0, size: int = 1) -> RolloutRequest:
        """What is asked for; `index` counts the forks that are made together, `size` is how many there are.

        Task and rollout index are the parent's, since its code may have gone by them.
        """
        before = self.parent.request
        task = bytes(before.task)
        if self._target is None and self.changes.edit.fields:
            task = edited_task(task, self.changes.edit.fields)
        return msgspec.structs.replace(
            before,
            task=msgspec.Raw(task),
            agent=self.agent,
            run_id=run_id,
            attempt=0,
            parent=self.parent.rollout_id,
            policy_version=None,
            group="",
            group_size=size,
            fork=self._fork(rollout_id, index),
        )

    def events(
        self, request: RolloutRequest, rollout_id: str, subjects: Subjects, writer: str, now: datetime
    ) -> Iterator[Event]:
        """The events to write, in this order; the last one is the rollout's request. Large data is in them whole.

        `writer` is whose replies the shared ones are. Their IDs begin with the rollout's, which nobody else has.
        """
        copied = self._copied()
        root = f"{rollout_id}-{ROOT_CALL}"
        ids = {self.parent.requested.event.id: root}
        ids |= {recorded.event.id: f"{rollout_id}-s{place}" for place, recorded in enumerate(copied)}
        for recorded in copied:
            event = recorded.event
            key, tokens = event.callkey, recorded.subject.split(".")
            reply = subjects.reply(writer, rollout_id, key)
            asks = recorded is self.parent.calls[key].requested
            what, data, capture, policy = self._said(recorded, request)
            yield msgspec.structs.replace(
                event,
                id=ids[event.id],
                type=what,
                subject=subjects.copied(tokens[2], tokens[3], rollout_id, key) if asks else reply,
                rolloutid=rollout_id,
                replyto=reply if asks else "",
                causationid=ids.get(event.causationid, ""),
                data=msgspec.Raw(data),
                dataref="",
                capture=capture,
                captureref="",
                policy=policy,
                generated=SAID_ELSEWHERE if capture is NOTHING else event.generated,
            )
        yield Event(
            id=root,
            source=f"replay/{writer}",
            type="rollout.requested",
            time=now,
            subject=subjects.request("agents", self.agent, 1, rollout_id, ROOT_CALL),
            rolloutid=rollout_id,
            callkey=ROOT_CALL,
            replyto=subjects.ended(request.run_id, rollout_id),
            traceparent=f"00-{token_hex(16)}-{token_hex(8)}-01",
            data=msgspec.Raw(msgspec.json.encode(request)),
        )

    def trajectory(self) -> Trajectory:
        """The fork as it would stand in a log before anybody takes it."""
        subjects, rollout = Subjects("whatif", 1), self.parent.rollout_id
        request = self.request(rollout, self.parent.request.run_id)
        heads = Heads()
        events = []
        for seq, event in enumerate(self.events(request, rollout, subjects, "whatif", self.parent.started), start=1):
            events.append(heads.of(Recorded(seq=seq, subject=event.subject, event=event, raw=encode(event))))
        return Trajectory(rollout, events, heads.payloads)

    def _is_shared(self, call: Call) -> bool:
        if self._whole or call is self._target:
            return True
        return call.replied is not None and call.replied.seq < self.before

    def _copied(self) -> list[Recorded]:
        keys = {call.key for call in self.shared}
        calls = [call for call in self.parent.calls.values() if call.key.partition(SUB_CALL)[0] in keys]
        events = [event for call in calls for event in (call.requested, call.replied) if event is not None]
        return sorted(events, key=lambda recorded: recorded.seq)

    def _said(
        self, recorded: Recorded, request: RolloutRequest
    ) -> tuple[str, bytes, msgspec.Raw, tuple[int, int] | None]:
        """Type, data, capture and policy versions of the copy. What was edited is not what an engine generated."""
        event = recorded.event
        data = self.parent.data(event)
        if self._target is not None and recorded is self._target.replied:
            return *edited_reply(self._target, data, self.changes.edit), NOTHING, None
        captured = self.parent.blobs.get(event.captureref)
        capture = event.capture if captured is None else msgspec.Raw(captured)
        if event.type == "agent.requested":  # which says the run, as the agent's code knows it
            asked = msgspec.structs.replace(_REQUEST.decode(data), run_id=request.run_id)
            data = msgspec.json.encode(asked)
        return event.type, data, capture, event.policy

    def _fork(self, rollout_id: str, index: int) -> Fork:
        before, requested = self.parent.request.fork, self.parent.requested
        replies = len([call for call in self.shared if call.replied is not None])
        seeds = before.seeds if before is not None else ((0, self.parent.rollout_id),)
        if not self._whole:
            own = f"{self.changes.seed}/{index}" if self.changes.seed else rollout_id
            seeds = (*(phase for phase in seeds if phase[0] < replies), (replies, own))
        known = before.nested if before is not None else {}
        return Fork(
            rollout=self.parent.rollout_id,
            at=self.before,
            started=before.started if before is not None else requested.event.time,
            seeds=seeds,
            nested={call.key: known.get(call.key, self.parent.rollout_id) for call in self._nested()},
            routed={**(before.routed if before is not None else {}), **self.changes.routed},
        )

    def _nested(self) -> list[Call]:
        keys = {call.key for call in self.shared}
        calls = self.parent.calls.values()
        return [call for call in calls if call.what == "agent" and call.key.partition(SUB_CALL)[0] in keys]


def _target(at: Point, edit: Edit) -> Call | None:
    """The call whose reply is edited; None where nothing is, or the task. Raises `Misused`."""
    if edit.drop + bool(edit.fields) + (edit.reply is not None) > 1:
        raise Misused("give one of --set-reply, --edit and --drop")
    if not edit.given:
        return None
    if at.seq == 0:
        if not edit.fields:
            raise Misused("at 0 stands the task, which is no reply: change its fields with --edit")
        return None
    if at.call is None:
        raise Misused("after the last event there is no reply that could be changed")
    if at.call.replied is None:
        raise Misused(f"call {at.call.key} has no reply that could be changed")
    if SUB_CALL in at.call.key:
        above = at.call.key.partition(SUB_CALL)[0]
        raise Misused(
            f"call {at.call.key} was made under call {above}, which is shared whole or made again whole: change the "
            f"reply of {above}"
        )
    return at.call
