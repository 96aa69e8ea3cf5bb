"""When things happened in a rollout, and what each call added: the story, before it is drawn.

Pure. `story` draws it in the terminal; a page or a trace file can be drawn from it too. Times are seconds since the
rollout was requested, as the workers' clocks say; on several machines they may disagree a little.
"""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final

import msgspec

from components.durable.history import SUB_CALL
from contracts.contexts import read_request
from contracts.events import Recorded
from replay.trajectory import Adoption, Call, Trajectory


class _Input(msgspec.Struct):
    input: list[Any]


_PARAMS: Final = msgspec.json.Decoder(dict[str, Any])
_INPUT: Final = msgspec.json.Decoder(_Input)


class Step(msgspec.Struct, kw_only=True):
    """One call in the story, or something that happened between calls."""

    at: float
    """When it was asked for, or happened."""
    call: Call | None = None
    adoption: Adoption | None = None
    other: Recorded | None = None
    took: float | None = None
    """From request to reply; None where there is no reply."""
    worked: float = 0.0
    """Of that, the seconds that the callee worked. The rest is queue and travel."""
    together: int = 1
    """Calls of the same branch of the tree that were under way in one stretch with this one."""
    place: int = 0
    """Its place among those, from 0."""
    steps: list["Step"] = []
    """What happened under this call: the calls of an agent that was called, or of a tool that calls a model."""

    @property
    def waited(self) -> float:
        """Seconds in the queue and on the way."""
        return max(0.0, (self.took or 0.0) - self.worked)


def timeline(trajectory: Trajectory) -> list[Step]:
    """The steps of a rollout in the order in which they were asked for; calls under calls are in their `steps`."""
    steps = {key: _step(trajectory, call) for key, call in trajectory.calls.items()}
    top: list[Step] = []
    for key, step in steps.items():
        parent = steps.get(key.rpartition(SUB_CALL)[0])
        (parent.steps if parent is not None else top).append(step)
    for adoption in trajectory.adoptions:
        caller = steps.get(adoption.prefix.removesuffix(SUB_CALL))
        step = Step(at=trajectory.offset(adoption.recorded), adoption=adoption)
        _insert(caller.steps if caller is not None else top, step, adoption.recorded.seq)
    for other in trajectory.others:
        _insert(top, Step(at=trajectory.offset(other), other=other), other.seq)
    _mark_parallel(top)
    return top


def walk(steps: Iterable[Step]) -> Iterator[Step]:
    """All steps, each before what happened under it."""
    for step in steps:
        yield step
        yield from walk(step.steps)


class News:
    """What each model call says that was not said before in its conversation.

    Calls are to come in the order of the story. A request repeats the whole conversation; a reader wants each item
    once. Items are compared as JSON, so an edited or compacted history shows as new items. Of what was said only
    digests are kept, and what a request cites of a call that was told is not read again.
    """

    def __init__(self, trajectory: Trajectory) -> None:
        self._trajectory = trajectory
        self._said: dict[str, set[bytes]] = {}
        self._settings: dict[str, tuple[Mapping[str, Any], bytes]] = {}
        self._lengths: dict[str, int] = {}
        """Items in the context of each call that was told."""

    def request(self, call: Call) -> tuple[dict[str, Any], list[Any]]:
        """The settings that differ from the previous model call of the same agent, and the new items of the input."""
        settings, items = self._cited(call) or self._whole(call)
        said = self._said.setdefault(_scope(call), set())
        new = []
        for item in items:
            mark = _mark(item)
            if mark not in said:
                said.add(mark)
                new.append(item)
        return dict(settings) if self._changed(call, settings) else {}, new

    def reply(self, call: Call) -> dict[str, Any]:
        """The model's reply; its items count as said."""
        if call.replied is None:
            return {}
        response = _decoded(self._trajectory.data(call.replied.event))
        output = response.get("output") or ()
        if call.key in self._lengths:
            self._lengths[call.key] += len(output)
        self._said.setdefault(_scope(call), set()).update(map(_mark, output))
        return response

    def output(self, call: Call, output: Any, call_id: str) -> None:
        """A tool's output counts as said, under the model's name for the call."""
        item = {"type": "function_call_output", "call_id": call_id, "output": output}
        self._said.setdefault(_scope(call), set()).add(_mark(item))

    def _cited(self, call: Call) -> tuple[Mapping[str, Any], list[Any]] | None:
        """The settings and the items after those that are cited of a call that was told; None where none is."""
        try:
            short = read_request(self._trajectory.data(call.requested.event))
            if short.cited is None or short.cited.last > self._lengths.get(short.cited.call, -1):
                return None
            items = _INPUT.decode(short.request).input
            settings = self._trajectory.settings(call)
        except msgspec.DecodeError:
            return None
        self._lengths[call.key] = short.cited.last - short.cited.first + len(items)
        return settings, items

    def _whole(self, call: Call) -> tuple[Mapping[str, Any], list[Any]]:
        params = _decoded(self._trajectory.asked(call))
        given = params.pop("input", [])
        if isinstance(given, str):
            return params, [{"role": "user", "content": given}]
        self._lengths[call.key] = len(given)
        return params, given

    def _changed(self, call: Call, settings: Mapping[str, Any]) -> bool:
        before = self._settings.get(_scope(call))
        if before is not None and before[0] is settings:
            return False
        told = msgspec.json.encode(settings, order="sorted")
        self._settings[_scope(call)] = settings, told
        return before is None or before[1] != told


def _decoded(data: bytes) -> dict[str, Any]:
    try:
        return _PARAMS.decode(data)
    except msgspec.DecodeError:  # not ours to judge here: it is shown raw
        return {"data": data.decode(errors="replace")}


def _scope(call: Call) -> str:
    return call.key.rpartition(SUB_CALL)[0]


def _mark(item: object) -> bytes:
    """The digest of an item without what engines and converters add to it on the way: IDs, status and absent fields."""
    if isinstance(item, dict):
        item = {key: value for key, value in item.items() if key not in ("id", "status") and value is not None}
        if item.get("type") == "message":
            item = {key: value for key, value in item.items() if key != "type"}
    return blake2b(msgspec.json.encode(item, order="sorted"), digest_size=16).digest()


def _step(trajectory: Trajectory, call: Call) -> Step:
    at = trajectory.offset(call.requested)
    if call.replied is None:
        return Step(at=at, call=call)
    took = trajectory.offset(call.replied) - at
    return Step(at=at, call=call, took=took, worked=call.replied.event.elapsed)


def _insert(steps: list[Step], step: Step, seq: int) -> None:
    """Puts something that is no call to where it stands in the log."""
    place = next((i for i, other in enumerate(steps) if _seq(other) > seq), len(steps))
    steps.insert(place, step)


def _seq(step: Step) -> int:
    recorded = step.call.requested if step.call else step.adoption.recorded if step.adoption else step.other
    assert recorded is not None
    return recorded.seq


def _mark_parallel(steps: list[Step]) -> None:
    """Finds the stretches of calls in which each was asked for before all of those before it were answered."""
    group: list[Step] = []
    until = 0.0
    for step in steps:
        _mark_parallel(step.steps)
        if step.call is None:
            continue
        seq = step.call.requested.seq
        if seq > until:
            _number(group)
            group = []
        group.append(step)
        if step.call.replied is not None:
            until = max(until, step.call.replied.seq)
        elif step.call.what != "timer":  # a timer that has not fired holds nothing up
            until = float("inf")
    _number(group)


def _number(group: list[Step]) -> None:
    for place, step in enumerate(group):
        step.together, step.place = len(group), place
