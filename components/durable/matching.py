"""Does the agent's code still do what the log says it did?

`reexecute` is crash recovery, `replay verify`, `fork` and the debugger in one: it runs the code from its start on the
recorded replies and compares each call it makes with the recorded one. It publishes nothing.

Why it is exact: a worker publishes a call only after it was made, and gives the code one reply after another in the
order of the log. So a recorded request may stand later than the moment at which it is made again (its worker was
slow), never earlier; and before a recorded reply is given, every request that stands before it must have been made.

A reply that was deleted is told at its call, once something stands in the log that could only follow from it.

What it cannot see: a change of a reply shows at the first request that follows from it; where none does, it shows in
the result only, which the caller compares. The requests of one step may stand in the log in any order.
"""

import hashlib
from typing import Final, TypeVar

from components.durable.calls import Call, Reply
from components.durable.difference import first_difference, shown
from components.durable.errors import Departure, NondeterminismError, UnknownReply
from components.durable.execution import Execution
from components.durable.history import History, RecordedCall
from components.durable.loop import MAX_NAMED

T = TypeVar("T")

UNANSWERED: Final = "the code waits for the reply to this call, and none is recorded"
"""The reason of a departure that is a gap in the recording, as long as the code has not changed."""


def reexecute(execution: Execution[T], history: History) -> list[Call]:
    """Starts a fresh execution and takes it to where the history ends.

    Returns the calls that the code made and that are not recorded, in the order in which they were made: they are to
    be published. After it the execution goes on with `deliver`. Raises `NondeterminismError` at the first event at
    which code and history differ; the execution is closed then.
    """
    matcher = _Matcher(execution, history)
    execution.watch(matcher.compare)
    try:
        made = matcher.run()
    except NondeterminismError:
        execution.watch(None)
        execution.close()
        raise
    execution.watch(None)
    return made


class _Matcher:
    def __init__(self, execution: Execution[T], history: History) -> None:
        self._execution = execution
        self._history = history
        self._expected = iter(sorted(history.calls.values(), key=lambda call: call.seq))
        self._next = next(self._expected, None)
        self._made: set[str] = set()
        self._given = 0
        self._departure: NondeterminismError | None = None

    def run(self) -> list[Call]:
        execution, calls = self._execution, self._history.calls
        unrecorded = [call for call in self._step(None) if call.key not in calls]
        for reply in self._history.replies:
            self._all_made_before(reply.seq)
            if reply.key not in calls:
                raise self._error("the reply is recorded, but not its request", reply.key, reply.seq)
            if calls[reply.key].seq > reply.seq:
                raise self._error("the reply stands before its request", reply.key, reply.seq)
            unrecorded += [call for call in self._step(reply) if call.key not in calls]
        self._all_made_before(None)
        if self._history.complete:
            if unrecorded:
                call = unrecorded[0]
                made = f"{call.type} to {call.kind}/{call.instance}"
                raise self._error("the code makes a call that is not recorded", call.key, 0, made=made)
            if not execution.done:
                raise self._waiting("the end of the rollout")
        return unrecorded

    def compare(self, call: Call) -> None:
        """Called from within agent code as it makes a call."""
        recorded = self._history.calls.get(call.key)
        if self._departure is None and recorded is not None:
            self._made.add(call.key)
            self._departure = self._difference(recorded, call)
        if self._departure is not None:
            raise Departure

    def _step(self, reply: Reply | None) -> list[Call]:
        """One step of the execution; a departure on the way comes before whatever else the step ended with."""
        calls: list[Call] = []
        unknown = None
        try:
            if reply is None:
                calls = self._execution.start()
            else:
                self._given = reply.seq
                calls = self._execution.deliver(reply)
        except Departure:
            pass
        except UnknownReply as error:
            unknown = error
        if self._departure is not None:
            raise self._departure
        if unknown is not None:
            raise self._error(
                "the reply is recorded, but the code has not made the call", unknown.call_key, self._given
            )
        return calls

    def _all_made_before(self, seq: int | None) -> None:
        while self._next is not None and (seq is None or self._next.seq < seq):
            recorded = self._next
            if recorded.key not in self._made:
                if self._lacks_a_reply(recorded):
                    raise self._waiting(f"{recorded.type} to {recorded.kind}/{recorded.instance} as {recorded.key}")
                raise self._error(
                    "the code does not make this recorded call",
                    recorded.key,
                    recorded.seq,
                    recorded=f"{recorded.type} to {recorded.kind}/{recorded.instance}",
                    made=self._raised(),
                )
            self._next = next(self._expected, None)

    def _lacks_a_reply(self, recorded: RecordedCall) -> bool:
        """Whether the recording has lost what led to this call, which the code does not make.

        It has, where the call says that it follows from an event that is not there, or where the code could not go on
        to any call: all that it waits for was never answered.
        """
        lost = self._unanswered()
        if not lost:
            return False
        calls = self._history.calls
        known = {reply.id for reply in self._history.replies} | {calls[key].cause for key in self._made}
        if recorded.cause and recorded.cause not in known:
            return True
        others = self._execution.outstanding.difference(lost)
        return all(key in calls and calls[key].kind == "timers" for key in others)

    def _unanswered(self) -> list[str]:
        """Recorded calls that the code waits for and that no reply is recorded to; timers, which may be idle, last."""
        calls, answered = self._history.calls, {reply.key for reply in self._history.replies}
        found = (key for key in self._execution.outstanding if key in calls and key not in answered)
        return sorted(found, key=lambda key: (calls[key].kind == "timers", calls[key].seq))

    def _waiting(self, then: str) -> NondeterminismError:
        """The code waits for a reply that is not there, and yet things went on; one of those that it names."""
        calls, lost = self._history.calls, self._unanswered()
        key = lost[0] if lost else min(self._execution.outstanding)
        seq = calls[key].seq if key in calls else 0
        rest = f" (nor to {', '.join(lost[1 : 1 + MAX_NAMED])})" if lost[1:] else ""
        return self._error(UNANSWERED, key, seq, recorded=f"no reply{rest}, and then {then}")

    def _raised(self) -> str:
        """What ended the code early, where something did."""
        error = self._execution.error()
        return shown(f"it ends with {error!r}") if error is not None else ""

    def _difference(self, recorded: RecordedCall, call: Call) -> NondeterminismError | None:
        routed = self._history.routed.get(call.instance, call.instance)
        for name, was, now in (
            ("kind", recorded.kind, call.kind),
            ("instance", recorded.instance, routed if recorded.instance == routed else call.instance),
            ("type", recorded.type, call.type),
        ):
            if was != now:
                return self._departed("the call has another target", recorded, name, was, now)
        return None if self._history.loose else self._stricter(recorded, call)

    def _stricter(self, recorded: RecordedCall, call: Call) -> NondeterminismError | None:
        """What the call asks for, and when it is made."""
        if recorded.dataref:
            digest = f"sha256:{hashlib.sha256(call.data).hexdigest()}"
            if digest != recorded.dataref:
                stored = self._history.blobs.get(recorded.dataref)
                if stored is None:
                    return self._departed("the call has other arguments", recorded, "data", recorded.dataref, digest)
                field, was, now = first_difference(stored, call.data)
                return self._departed("the call has other arguments", recorded, f"data{field}", was, now)
        elif recorded.data != call.data:
            field, was, now = first_difference(recorded.data, call.data)
            return self._departed("the call has other arguments", recorded, f"data{field}", was, now)
        if recorded.seq <= self._given:
            reason = f"the call stands before event {self._given}, but the code makes it only after that"
            return self._departed(reason, recorded, "", str(recorded.seq), f"after {self._given}")
        if recorded.cause and call.cause and recorded.cause != call.cause:
            return self._departed("the call follows another event", recorded, "causationid", recorded.cause, call.cause)
        return None

    def _departed(self, reason: str, call: RecordedCall, field: str, was: str, now: str) -> NondeterminismError:
        file, line = self._execution.where_called(call.key)
        return NondeterminismError(
            reason,
            rollout_id=self._execution.rollout_id,
            call_key=call.key,
            seq=call.seq,
            file=file,
            line=line,
            recorded=shown(was),
            made=shown(now),
            field=field,
        )

    def _error(self, reason: str, key: str, seq: int, *, recorded: str = "", made: str = "") -> NondeterminismError:
        """A difference that shows while the code waits or has ended."""
        file, line = self._execution.where(key)
        return NondeterminismError(
            reason,
            rollout_id=self._execution.rollout_id,
            call_key=key,
            seq=seq,
            file=file,
            line=line,
            recorded=recorded,
            made=made,
        )
