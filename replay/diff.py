"""How do two trajectories differ, call by call, and where do they first part?

Called by `replay diff`. Pure. Calls are aligned by their key, which is the path of the agent's code, or by their place
in their turn, where the code or the agent is another one. Of a request only what it adds to the conversation is
compared, so that a difference is told once and not again in each turn after it. What engines make up anew each time
(IDs of responses, items and tool calls, times) counts for nothing.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

from components.durable.history import SUB_CALL
from contracts.rollouts import RolloutFailure, RolloutResult
from contracts.tokens import read_capture, unpack_ids, unpack_logprobs
from replay.errors import BrokenHistory
from replay.parts import json_parts
from replay.payloads import Listed, Payloads
from replay.timeline import News, timeline, walk
from replay.trajectory import Call, Trajectory
from replay.words import Change, changes

By = Literal["key", "turn"]

MADE_UP: Final = frozenset({"id", "call_id", "created_at", "completed_at", "snapshot"})


class TokenDifference(msgspec.Struct, frozen=True, kw_only=True):
    """Two generations, token by token."""

    same: int
    """Tokens that both begin with."""
    lengths: tuple[int, int]
    tokens: tuple[int | None, int | None] = (None, None)
    """IDs of the first tokens that differ; None where one has ended."""
    logprobs: tuple[float | None, float | None] = (None, None)
    """Log-probabilities of these."""


class CallDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One call that both have, or that only one has."""

    label: str
    """What they were aligned by: the key, or the place in the turn."""
    turn: int
    """Model calls of the rollout's own agent up to this one; 0 before the first."""
    what: str
    keys: tuple[str, str]
    """In each; empty where it is missing."""
    seqs: tuple[int, int]
    """Numbers of the request's events; 0 where it is missing."""
    status: Literal["same", "differs", "removed", "added"]
    target: tuple[str, str] = ("", "")
    """Where they call different instances."""
    request: tuple[Change, ...] = ()
    reply: tuple[Change, ...] = ()
    tokens: TokenDifference | None = None


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Two rollouts."""

    one: str
    other: str
    verdict: Literal["same", "differs"]
    aligned: By
    rewards: tuple[float | None, float | None]
    outcomes: tuple[str, str]
    counts: dict[str, int]
    """Calls by status."""
    task: tuple[Change, ...]
    calls: Sequence[CallDifference]
    """In the order of the first, what is added where it stands in the second."""
    result: tuple[Change, ...]
    """Of the result beside the conversation: what the verifier said."""

    @property
    def first(self) -> CallDifference | None:
        """The first call at which they part."""
        return next((call for call in self.calls if call.status != "same"), None)

    def json(self) -> Iterator[bytes]:
        """It as JSON, in parts."""
        return json_parts(self, "calls", map(msgspec.json.encode, self.calls))


class _Told:
    """One trajectory's calls by their labels, with what each of them added."""

    def __init__(self, trajectory: Trajectory, by: By) -> None:
        self.trajectory = trajectory
        self.calls: dict[str, Call] = {}
        self.turns: dict[str, int] = {}
        self.asked = Payloads()
        """By label."""
        self._news = News(trajectory)
        turn, places = 0, Counter[str]()
        for step in walk(timeline(trajectory)):
            if (call := step.call) is None:
                continue
            own = SUB_CALL not in call.key
            turn += own and call.what == "model"
            label = call.key
            if by == "turn":
                kind = f"turn {turn} {call.what}" if own else f"turn {turn} nested {call.what}"
                places[kind] += 1
                label = f"{kind} {places[kind]}"
            self.calls[label], self.turns[label] = call, turn
            self.asked.add(label, self._asked(call))

    def _asked(self, call: Call) -> bytes:
        data = self.trajectory.data(call.requested.event)
        if call.what == "model":
            settings, items = self._news.request(call)
            self._news.reply(call)
            return msgspec.json.encode({**settings, "input": items})
        if call.what == "tool" and call.replied is not None and not call.failed:
            output = msgspec.json.decode(self.trajectory.data(call.replied.event)).get("output")
            self._news.output(call, output, msgspec.json.decode(data).get("call_id", ""))
        if call.what in ("verify", "session", "agent"):
            return b"null"  # the response and the task are compared where they come from
        return data

    def answered(self, call: Call) -> bytes:
        if call.replied is None:
            return b"null"
        data = self.trajectory.data(call.replied.event)
        if call.what != "agent":
            return data
        ending: dict[str, Any] = msgspec.json.decode(data)
        ending.pop("stats", None)  # what was counted and timed in it: its calls are compared one by one
        return msgspec.json.encode(ending)


def difference(one: Trajectory, other: Trajectory, *, by: By = "key") -> Difference:
    """The differences of two rollouts; tokens are compared where their captures are there. Raises `BrokenHistory`."""
    told = _Told(one, by), _Told(other, by)
    calls, counts = Listed(CallDifference), Counter[str]()
    for label in _ordered(told[0].calls, told[1].calls):
        call = _call(told[0], told[1], label)
        counts[call.status] += 1
        calls.append(call)
    task = tuple(changes(bytes(one.request.task), bytes(other.request.task)))
    result = tuple(changes(_result(one), _result(other), MADE_UP))
    same = not (task or result) and set(counts) <= {"same"} and (one.state, one.reward) == (other.state, other.reward)
    return Difference(
        one=one.rollout_id,
        other=other.rollout_id,
        verdict="same" if same else "differs",
        aligned=by,
        rewards=(one.reward, other.reward),
        outcomes=(one.state, other.state),
        counts=dict(counts),
        task=task,
        calls=calls,
        result=result,
    )


def _ordered(one: Collection[str], other: Iterable[str]) -> Iterator[str]:
    """The labels of both: those of the first in order, the others each after the one that it follows."""
    added: dict[str | None, list[str]] = {}
    before: str | None = None
    for label in other:
        if label in one:
            before = label
        else:
            added.setdefault(before, []).append(label)
    yield from added.get(None, ())
    for label in one:
        yield label
        yield from added.get(label, ())


def _call(one: _Told, other: _Told, label: str) -> CallDifference:
    was, now = one.calls.get(label), other.calls.get(label)
    there = one if was is not None else other
    call = was if was is not None else now
    assert call is not None
    found = CallDifference(
        label=label,
        turn=there.turns[label],
        what=call.what,
        keys=(was.key if was else "", now.key if now else ""),
        seqs=(was.requested.seq if was else 0, now.requested.seq if now else 0),
        status="removed" if now is None else "added",
    )
    if was is None or now is None:
        return found
    target = _target(was), _target(now)
    if was.what != now.what:
        return msgspec.structs.replace(found, status="differs", target=target)
    request = tuple(changes(one.asked[label], other.asked[label], MADE_UP))
    reply = tuple(changes(one.answered(was), other.answered(now), MADE_UP))
    tokens = _tokens(one, was, other, now)
    same = not (request or reply) and target[0] == target[1] and (tokens is None or tokens.same == max(tokens.lengths))
    return msgspec.structs.replace(
        found,
        status="same" if same else "differs",
        target=target if target[0] != target[1] else ("", ""),
        request=request,
        reply=reply,
        tokens=tokens,
    )


def _target(call: Call) -> str:
    failed = " (failed)" if call.failed else ""
    return f"{call.what} {call.instance}{failed}"


def _result(trajectory: Trajectory) -> bytes:
    """How it ended, without the conversation, which is compared call by call, and without what was counted."""
    match trajectory.outcome:
        case RolloutResult():
            return msgspec.json.encode({"reward": trajectory.reward, **trajectory.extra})
        case RolloutFailure() as found:
            return msgspec.json.encode({"kind": found.kind, "message": found.message})
    return b"null"


def _generated(told: _Told, call: Call) -> tuple[Any, Any] | None:
    if call.what != "model" or call.replied is None:
        return None
    event = call.replied.event
    raw = told.trajectory.blobs.get(event.captureref) if event.captureref else event.capture
    if raw is None or not event.captured:
        return None
    try:
        capture = read_capture(raw)
        return (unpack_ids(capture.generated), unpack_logprobs(capture.logprobs)) if capture.has_tokens else None
    except (msgspec.DecodeError, ValueError) as error:
        where = f"rollout {told.trajectory.rollout_id}, event {call.replied.seq}"
        raise BrokenHistory(f"{where}: its tokens cannot be read: {error}") from error


def _tokens(one: _Told, was: Call, other: _Told, now: Call) -> TokenDifference | None:
    mine, theirs = _generated(one, was), _generated(other, now)
    if mine is None or theirs is None:
        return None
    lengths = len(mine[0]), len(theirs[0])
    shortest = min(lengths)
    same = next((place for place in range(shortest) if mine[0][place] != theirs[0][place]), shortest)
    if same == max(lengths):
        return TokenDifference(same=same, lengths=lengths)
    found = [(_at(ids, same), _at(logprobs, same)) for ids, logprobs in (mine, theirs)]
    return TokenDifference(
        same=same, lengths=lengths, tokens=(found[0][0], found[1][0]), logprobs=(found[0][1], found[1][1])
    )


def _at(values: Any, place: int) -> Any:
    return values[place] if place < len(values) else None
