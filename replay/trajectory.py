"""What happened in one rollout: its events, put together as calls.

Pure: a trajectory is built from recorded events, whichever source they came from. Every verb of `replay` that looks
at one rollout begins here. It renders nothing and executes nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final, Literal, TypeVar

import msgspec

from components.durable.history import SUB_CALL
from contracts.contexts import REMEMBERED, ModelCalls, ModelRequest, read_request
from contracts.errors import MissingContext
from contracts.events import Event, Kind, Recorded
from contracts.ids import ROOT_CALL
from contracts.rollouts import Adopted, Revised, RolloutFailure, RolloutRequest, RolloutResult, VerifyRequest
from replay.errors import BrokenHistory
from replay.payloads import Payloads

Decoded = TypeVar("Decoded", bound=msgspec.Struct)

REVISED: Final = "rollout.revised"
"""The type of a later score. It comes after the end, and is no part of what happened."""
_REQUEST: Final = msgspec.json.Decoder(RolloutRequest)
_RESULT: Final = msgspec.json.Decoder(RolloutResult)
_VERIFY: Final = msgspec.json.Decoder(VerifyRequest)
_FAILURE: Final = msgspec.json.Decoder(RolloutFailure)
_REVISED: Final = msgspec.json.Decoder(Revised)
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ADDRESS: Final = 4
"""Tokens of a request's subject up to and with the instance."""


class Call(msgspec.Struct, kw_only=True):
    """A request and what was answered to it."""

    key: str
    kind: Kind
    instance: str
    what: str
    """`model`, `tool`, `session`, `verify`, `agent`, `timer`: the first word of its events' types."""
    requested: Recorded
    replied: Recorded | None = None
    """None while it is outstanding, or for ever where the rollout ended before."""

    @property
    def failed(self) -> bool:
        """Whether it was answered with an error."""
        return self.replied is not None and self.replied.event.type.endswith(".failed")

    @property
    def worker(self) -> str:
        """The worker that answered, empty where none has."""
        return worker_of(self.replied.event) if self.replied is not None else ""

    @property
    def caller(self) -> str:
        """The worker that asked."""
        return worker_of(self.requested.event)


class Adoption(msgspec.Struct, kw_only=True):
    """Another worker took the rollout over."""

    recorded: Recorded
    epoch: int
    worker: str
    prefix: str
    """Of the calls of the execution that was adopted; empty for the rollout itself."""


ENDS: Final = frozenset({"rollout.completed", "rollout.failed", "rollout.cancelled"})
"""Types of the terminal events."""
_FROM_OUTSIDE: Final = frozenset({"deadline", "cancelled", "poison", "internal", "nondeterminism"})
"""Failures that a worker may give a rollout whose code has not ended."""
_ADOPTED: Final = msgspec.json.Decoder(Adopted)


def by_its_code(ending: RolloutResult | RolloutFailure | None) -> bool:
    """Whether an agent's code came to this end, as it must again; not where it was cut off, or has not ended."""
    return ending is not None and not (isinstance(ending, RolloutFailure) and ending.kind in _FROM_OUTSIDE)


class Trajectory:
    """One rollout's events in the order of the log, and the calls that they make up."""

    def __init__(self, rollout_id: str, events: Iterable[Recorded], blobs: Mapping[str, bytes] | None = None) -> None:
        """`blobs` holds the data of events that are claim checks, by `dataref`; maybe captures too.

        Raises `BrokenHistory`.
        """
        self.rollout_id = rollout_id
        self.events = sorted(events, key=lambda recorded: recorded.seq)
        self.blobs = blobs if isinstance(blobs, Payloads) else Payloads(blobs)
        self.calls: dict[str, Call] = {}
        self.adoptions: list[Adoption] = []
        self.revisions: list[Revised] = []
        """Later scores, in their order."""
        self.revised: list[Recorded] = []
        """The events of these."""
        self.others: list[Recorded] = []
        """Events of types that this version has no place for, dead letters among them."""
        self.ended: Recorded | None = None
        self._settings: dict[str, dict[str, Any]] = {}
        """Of model calls that were looked up, by key; most are the very same."""
        requested: Recorded | None = None
        for recorded in self.events:
            event = recorded.event
            if event.type == "rollout.requested":
                requested = recorded
            elif event.type == REVISED:
                self.revisions.append(self.decoded(recorded, _REVISED))
                self.revised.append(recorded)
            elif event.type == "rollout.adopted":
                self.adoptions.append(self._adoption(recorded))
            elif event.type in ENDS:
                self.ended = recorded
            elif event.type.endswith(".requested") and event.callkey:
                self.calls[event.callkey] = _call(recorded)
            elif event.type.endswith((".replied", ".failed")) and event.callkey in self.calls:
                self.calls[event.callkey].replied = recorded
            else:
                self.others.append(recorded)
        if requested is None:
            raise BrokenHistory(f"rollout {rollout_id}: its request is not among its {len(self.events)} events")
        self.requested = requested

    def data(self, event: Event) -> bytes:
        """The event's data, also where it is a claim check."""
        if not event.dataref:
            return bytes(event.data)
        try:
            return self.blobs[event.dataref]
        except KeyError:
            raise BrokenHistory(f"event {event.id}: its data {event.dataref} is not there") from None

    @cached_property
    def _model_calls(self) -> ModelCalls:
        return ModelCalls(_Said(self, "requested"), _Said(self, "replied"), remembered=REMEMBERED)

    def settings(self, call: Call) -> Mapping[str, Any]:
        """What a model request says beside its input, also where it cites another one for that.

        Raises `BrokenHistory`, and `msgspec.DecodeError` where it is no model request.
        """
        chain: list[tuple[str, ModelRequest, dict[str, Any]]] = []
        key: str | None = call.key
        while key is not None and key not in self._settings:
            asked = self.calls.get(key)
            if asked is None:
                raise BrokenHistory(f"rollout {self.rollout_id}, event {call.requested.seq}: it cites call {key!r}")
            request = read_request(self.data(asked.requested.event))
            fields = _FIELDS.decode(request.request)
            fields.pop("input", None)
            chain.append((key, request, {name: msgspec.json.decode(value) for name, value in fields.items()}))
            key = request.cited.call if request.cited is not None else None
        found = self._settings[key] if key is not None else {}
        for key, request, given in reversed(chain):
            if given or request.without:
                found = {name: value for name, value in found.items() if name not in request.without} | given
            self._settings[key] = found
        return found

    def asked(self, call: Call) -> bytes:
        """What the callee was asked, whole: of a model a Responses request, of a verifier the response to score."""
        return self.whole(call.what, self.data(call.requested.event), f"event {call.requested.seq}")

    def whole(self, what: str, data: bytes, where: str) -> bytes:
        """A request with what it cites of this rollout; `where` names it in an error. Raises `BrokenHistory`."""
        try:
            if what == "model":
                return self._model_calls.whole_request(data)
            if what == "verify":
                asked = _VERIFY.decode(data)
                whole = self._model_calls.whole_response(asked.response, asked.cited)
                return msgspec.json.encode(VerifyRequest(task=asked.task, response=whole))
        except msgspec.DecodeError:  # not ours to judge here: it is shown as it stands
            return data
        except MissingContext as error:
            raise BrokenHistory(f"rollout {self.rollout_id}, {where}: {error}") from error
        return data

    @cached_property
    def request(self) -> RolloutRequest:
        """What was asked for."""
        return self.decoded(self.requested, _REQUEST)

    @cached_property
    def outcome(self) -> RolloutResult | RolloutFailure | None:
        """How it ended, as it is recorded: a response without what it cites; None while it is in flight."""
        return self.ending(self.ended)

    def whole_response(self, result: RolloutResult) -> bytes:
        """The response of a result of this rollout, with what it cites. Raises `BrokenHistory`."""
        try:
            return bytes(self._model_calls.whole_response(result.response, result.cited))
        except (MissingContext, msgspec.DecodeError) as error:
            raise BrokenHistory(f"rollout {self.rollout_id}, its result: {error}") from error

    def ending(self, replied: Recorded | None) -> RolloutResult | RolloutFailure | None:
        """What the rollout, or an agent that was called, is recorded to have come to; None where it has not ended."""
        if replied is None:
            return None
        if replied.event.type in ("rollout.completed", "agent.replied"):
            return self.decoded(replied, _RESULT)
        return self.decoded(replied, _FAILURE)

    @property
    def state(self) -> str:
        """`completed`, `failed`, `cancelled`, or `in flight`."""
        return "in flight" if self.ended is None else self.ended.event.type.partition(".")[2]

    @property
    def reward(self) -> float | None:
        """The reward, of the latest revision; None where there is none."""
        if self.first_reward is not None and self.revisions:
            return self.revisions[-1].reward
        return self.first_reward

    @property
    def first_reward(self) -> float | None:
        """The reward that it ended with; None where there is none."""
        return self.outcome.reward if isinstance(self.outcome, RolloutResult) else None

    @property
    def extra(self) -> Mapping[str, msgspec.Raw]:
        """What the verifier said beside the reward: in the latest revision, as the reward is."""
        if not isinstance(self.outcome, RolloutResult):
            return {}
        return self.revisions[-1].extra if self.revisions else self.outcome.extra

    @property
    def workers(self) -> list[str]:
        """All workers that wrote an event of the rollout, in the order of their first. Who revises it is none."""
        written = (recorded.event for recorded in self.events if recorded is not self.requested)
        found = dict.fromkeys(worker_of(event) for event in written if event.type != REVISED)
        found.pop("", None)
        return list(found)

    @property
    def started(self) -> datetime:
        """When it was asked for."""
        return self.requested.event.time

    def offset(self, recorded: Recorded) -> float:
        """Seconds from the rollout's request to this event; of a fork as if it had gone on where its parent was."""
        if (shared := self._shared.get(recorded.seq)) is not None:
            return shared
        return self._shared_s + (recorded.event.time - self.started).total_seconds()

    @property
    def begun(self) -> datetime:
        """When it was asked for; of a fork as if what it shares had been just before that."""
        return self.started - timedelta(seconds=self._shared_s)

    def moment(self, recorded: Recorded) -> datetime:
        """When an event happened, likewise."""
        return self.begun + timedelta(seconds=self.offset(recorded))

    @cached_property
    def _shared(self) -> dict[int, float]:
        """The offsets of what a fork shares, by sequence. Its parent may be a fork, whose trace is another one then."""
        offsets: dict[int, float] = {}
        if (fork := self.request.fork) is None:
            return offsets
        began, trace = fork.started, None
        for recorded in self.events:
            event = recorded.event
            if recorded is self.requested:
                break
            if trace is not None and event.traceparent != trace:
                began = event.time - timedelta(seconds=max(offsets.values()))
            trace = event.traceparent
            offsets[recorded.seq] = (event.time - began).total_seconds()
        return offsets

    @cached_property
    def _shared_s(self) -> float:
        """Seconds of its parent's time that a fork has from it."""
        return max(self._shared.values(), default=0.0)

    def decoded(self, recorded: Recorded, decoder: msgspec.json.Decoder[Decoded]) -> Decoded:
        """The event's data as a type; raises `BrokenHistory` that names the event."""
        try:
            return decoder.decode(self.data(recorded.event))
        except msgspec.DecodeError as error:
            what = recorded.event.type
            raise BrokenHistory(f"rollout {self.rollout_id}, event {recorded.seq} ({what}): {error}") from error

    def executions(self) -> Iterator["AgentRun"]:
        """The runs of agents in it: that of the rollout, then those of agents that were called."""
        yield AgentRun(
            prefix="", agent=self.requested.subject.split(".")[3], requested=self.requested, replied=self.ended
        )
        for call in self.calls.values():
            if call.what == "agent":
                yield AgentRun(
                    prefix=call.key + SUB_CALL, agent=call.instance, requested=call.requested, replied=call.replied
                )

    def agent_workers(self, run: "AgentRun") -> list[str]:
        """The workers that ran this execution, the latest first: there are several where it was adopted."""
        made = [call.requested for call in self.calls.values() if run.owns(call.key)]
        written = [*made, run.replied] if run.replied is not None else made
        return list(dict.fromkeys(worker_of(recorded.event) for recorded in reversed(written)))

    def _adoption(self, recorded: Recorded) -> Adoption:
        found = self.decoded(recorded, _ADOPTED)
        key = recorded.event.callkey
        prefix = "" if key in ("", ROOT_CALL) else key + SUB_CALL
        return Adoption(recorded=recorded, epoch=found.epoch, worker=found.worker, prefix=prefix)


def is_fork_point(trajectory: Trajectory, adoption: Adoption) -> bool:
    """Whether the adoption is the one with which a fork goes on from what it shares with its parent."""
    return trajectory.request.fork is not None and adoption.epoch == 1 and not adoption.prefix


class _Said(Mapping[str, bytes]):
    """What was asked of models, or what they replied, by call key; read when it is looked up."""

    def __init__(self, trajectory: Trajectory, which: Literal["requested", "replied"]) -> None:
        self._trajectory, self._which = trajectory, which

    def __getitem__(self, key: str) -> bytes:
        call = self._trajectory.calls[key]
        recorded = call.requested if self._which == "requested" else call.replied
        if call.what != "model" or recorded is None:
            raise KeyError(key)
        return self._trajectory.data(recorded.event)

    def __iter__(self) -> Iterator[str]:
        return iter(self._trajectory.calls)

    def __len__(self) -> int:
        return len(self._trajectory.calls)


class AgentRun(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of an agent's code within a rollout."""

    prefix: str
    """What the keys of its calls begin with."""
    agent: str
    """Name of the instance."""
    requested: Recorded
    replied: Recorded | None
    """The terminal event of the rollout, or the reply to the agent that called."""

    def owns(self, key: str) -> bool:
        """Whether this execution made the call: not one above it, nor one under one of its calls."""
        return key.startswith(self.prefix) and SUB_CALL not in key[len(self.prefix) :]


def worker_of(event: Event) -> str:
    """The worker that wrote an event: the last part of its source."""
    return event.source.rpartition("/")[2]


def _call(recorded: Recorded) -> Call:
    tokens = recorded.subject.split(".")
    if len(tokens) < _ADDRESS:
        raise BrokenHistory(f"event {recorded.seq}: {recorded.subject!r} addresses nobody")
    return Call(
        key=recorded.event.callkey,
        kind=tokens[2],  # type: ignore[arg-type]  # a kind that is new is shown as it stands
        instance=tokens[3],
        what=recorded.event.type.partition(".")[0],
        requested=recorded,
    )
