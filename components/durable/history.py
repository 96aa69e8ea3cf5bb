"""The recorded events of one rollout, as re-execution wants them.

The agent worker builds it on adoption, `replay` for all that it does. Pure: what stands in the object store is
fetched by the caller before.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, get_args, overload

import msgspec

from components.durable.calls import Reply
from components.durable.errors import InvalidHistory
from contracts.events import CallError, Kind, Recorded
from contracts.ids import ROOT_CALL

SUB_CALL: Final = "--"
"""Stands between the key of a call and the keys of the calls made under it."""

_KINDS: Final = frozenset(get_args(Kind))
_CALL_ERROR: Final = msgspec.json.Decoder(CallError)


class RecordedCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request as it stands in the log."""

    key: str
    kind: Kind
    instance: str
    type: str
    data: bytes = b""
    dataref: str = ""
    """`sha256:<hex>` of the data, which is then absent."""
    cause: str = ""
    """ID of the event that caused it; not compared when empty."""
    seq: int


class History(msgspec.Struct, frozen=True, kw_only=True):
    """What a rollout did so far."""

    calls: Mapping[str, RecordedCall]
    """By key, in the order of the log."""
    replies: Sequence[Reply] = ()
    """In the order of the log."""
    complete: bool = False
    """The agent's code ran to its end, so nothing may be missing. False for a rollout that is still in flight, and
    for one that was ended from outside (deadline, cancellation)."""
    routed: Mapping[str, str] = {}
    """Instances that a fork calls in place of others."""
    blobs: Mapping[str, bytes] = {}
    """The data of requests that are claim checks, as far as it is there: for telling which field of one departed."""
    loose: bool = False
    """Calls are compared by their key and their target alone: neither what they ask for nor when they are made."""


class Replies(Sequence[Reply]):
    """The replies that some events are; each is made, and its data looked up, when it is asked for."""

    def __init__(self, recorded: Sequence[Recorded], blobs: Mapping[str, bytes]) -> None:
        """`blobs` holds the data of those that are claim checks, by `dataref`."""
        self.recorded, self._blobs = recorded, blobs

    @overload
    def __getitem__(self, place: int) -> Reply: ...

    @overload
    def __getitem__(self, place: slice) -> "Replies": ...

    def __getitem__(self, place: int | slice) -> "Reply | Replies":
        if isinstance(place, slice):
            return Replies(self.recorded[place], self._blobs)
        recorded = self.recorded[place]
        event = recorded.event
        data = self._blobs[event.dataref] if event.dataref else bytes(event.data)
        return Reply(key=event.callkey, type=event.type, data=data, time=event.time, id=event.id, seq=recorded.seq)

    def __len__(self) -> int:
        return len(self.recorded)


def from_recorded(
    events: Iterable[Recorded],
    *,
    prefix: str = "",
    blobs: Mapping[str, bytes] | None = None,
    routed: Mapping[str, str] | None = None,
) -> History:
    """The history of the execution with this key prefix, out of all recorded events of its rollout.

    `blobs` holds the data of replies that are claim checks, by `dataref`, and maybe of requests. Calls made under other
    calls (by a sub-agent, by a tool) belong to other executions and are left out, as is the request of the rollout
    itself. Raises `InvalidHistory`.
    """
    blobs = blobs if blobs is not None else {}
    calls: dict[str, RecordedCall] = {}
    replies: dict[str, Recorded] = {}
    root = prefix.removesuffix(SUB_CALL) if prefix else ROOT_CALL
    complete = False
    for recorded in sorted(events, key=lambda each: each.seq):
        event, tokens = recorded.event, recorded.subject.split(".")
        key = event.callkey
        if event.type.startswith("rollout."):
            complete = complete or (not prefix and _ended_itself(recorded))
        elif tokens[2] == "reply" and key == root:
            complete = _ended_itself(recorded)
        elif not key.startswith(prefix) or SUB_CALL in key[len(prefix) :] or key == root:
            continue
        elif tokens[2] == "reply":
            if key in replies:
                raise InvalidHistory(f"event {recorded.seq}: a second reply to call {key!r}")
            if event.dataref and event.dataref not in blobs:
                raise InvalidHistory(f"event {recorded.seq}: its data {event.dataref} was not fetched")
            replies[key] = recorded
        elif tokens[2] in _KINDS and tokens[5:6] == ["request"]:
            if key in calls:
                raise InvalidHistory(f"event {recorded.seq}: a second request of call {key!r}")
            calls[key] = RecordedCall(
                key=key,
                kind=tokens[2],  # type: ignore[arg-type]  # it is in _KINDS
                instance=tokens[3],
                type=event.type,
                data=b"" if event.dataref else bytes(event.data),
                dataref=event.dataref,
                cause=event.causationid,
                seq=recorded.seq,
            )
    given = Replies(list(replies.values()), blobs)
    return History(calls=calls, replies=given, complete=complete, routed=routed or {}, blobs=blobs)


def _ended_itself(recorded: Recorded) -> bool:
    event = recorded.event
    if event.type in {"rollout.failed", "agent.failed"} and not event.dataref:
        return _CALL_ERROR.decode(event.data).kind == "agent_error"
    return event.type in {"rollout.completed", "agent.replied"}
