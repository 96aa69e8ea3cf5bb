"""Counts what a rollout used, from the replies that pass by: tokens, turns, tool calls, seconds, captures.

What a nested rollout used is in its reply, and counts for its caller too. Pure; the agent worker feeds it every reply,
recorded or live, so that an adopted rollout counts as if it had never moved. A reply that it cannot read is counted as
far as it can: what a model says must not stop a rollout here.
"""

from datetime import datetime

import msgspec

from contracts.events import Event
from contracts.rollouts import ModelStats, RolloutStats, Timings, Usage, counted, together
from contracts.tokens import glance


class _Usage(msgspec.Struct):
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0


class _Reply(msgspec.Struct):
    usage: _Usage | None = None


class _Ended(msgspec.Struct):
    stats: RolloutStats | None = None


_REPLY = msgspec.json.Decoder(_Reply)
_ENDED = msgspec.json.Decoder(_Ended)


class Tally:
    """The running counts of one rollout."""

    __slots__ = (
        "_input",
        "_models",
        "_output",
        "_seconds",
        "_started",
        "_tools",
        "_total",
        "_turns",
        "adoptions",
    )

    def __init__(self, started: datetime) -> None:
        self._started = started
        self._seconds: dict[str, float] = {}
        self._input = self._output = self._total = self._turns = self._tools = 0
        self._models: dict[str, _Model] = {}
        self.adoptions = 0

    def add(self, reply: Event, data: bytes) -> None:
        """Counts one reply."""
        call, _, outcome = reply.type.partition(".")
        self._took(call, reply.elapsed)
        if call == "tool":
            self._tools += 1
        elif call == "model" and outcome == "replied":
            self._turns += 1
            usage = _usage(data) or _Usage()
            self._input += usage.input_tokens
            self._output += usage.output_tokens
            self._total += usage.total_tokens
            self._of(reply.source.removeprefix("models/").partition("/")[0]).add_call(reply, usage.output_tokens)
        elif call == "agent" and (nested := _nested(data)) is not None:
            self._add_nested(nested)

    def _of(self, name: str) -> "_Model":
        found = self._models.get(name)
        if found is None:
            found = self._models[name] = _Model()
        return found

    def _add_nested(self, nested: RolloutStats) -> None:
        self._input += nested.usage.input_tokens
        self._output += nested.usage.output_tokens
        self._total += nested.usage.total_tokens
        self._turns += nested.turns
        self._tools += nested.tool_calls
        for name in nested.models:
            self._of(name).add(counted(nested, (name,)))
        times = nested.timings
        for call, seconds in (("model", times.model_s), ("tool", times.tools_s), ("verify", times.verify_s)):
            self._took(call, seconds)

    def _took(self, call: str, seconds: float) -> None:
        self._seconds[call] = self._seconds.get(call, 0.0) + seconds

    def stats(self, requested: datetime, now: datetime) -> RolloutStats:
        """The counts so far; `requested` is the time of the rollout's request. Clocks differ: no time is negative."""
        by_model = {name: model.stats() for name, model in self._models.items()}
        every = together(by_model.values())
        single, known = len(by_model) == 1, every.captured == 0 or every.generated == self._output
        return RolloutStats(
            usage=Usage(input_tokens=self._input, output_tokens=self._output, total_tokens=self._total),
            timings=Timings(
                queue_s=max(0.0, round((self._started - requested).total_seconds(), 6)),
                total_s=max(0.0, round((now - requested).total_seconds(), 6)),
                model_s=round(self._seconds.get("model", 0.0), 6),
                tools_s=round(self._seconds.get("tool", 0.0), 6),
                verify_s=round(self._seconds.get("verify", 0.0), 6),
            ),
            turns=self._turns,
            tool_calls=self._tools,
            models=tuple(self._models),
            adoptions=self.adoptions,
            captured=every.captured,
            flawed=every.flawed,
            policy=every.policy or msgspec.UNSET,
            generated=every.generated if single and not known else msgspec.UNSET,
            by_model=by_model if len(by_model) > 1 else msgspec.UNSET,
        )


class _Model:
    """The counts of one model instance."""

    __slots__ = ("captured", "counted", "flawed", "generated", "policy")

    def __init__(self) -> None:
        self.captured = self.flawed = self.generated = self.counted = 0
        """`generated` of the calls that are captured, `counted` by the engine of the others."""
        self.policy: tuple[int, int] | None = None

    def add_call(self, reply: Event, counted: int) -> None:
        captured = flawed = False
        if reply.captured:  # what is so large that it is elsewhere has tokens
            captured, flawed = (True, False) if reply.captureref else glance(bytes(reply.capture))
        tokens = reply.generated or counted
        self.add(ModelStats(captured=int(captured), flawed=int(flawed), generated=tokens, policy=reply.policy))

    def add(self, more: ModelStats) -> None:
        self.captured += more.captured
        self.flawed += more.flawed
        if more.captured:
            self.generated += more.generated
        else:
            self.counted += more.generated
        if more.policy is not None:
            known = (*(self.policy or ()), *more.policy)
            self.policy = min(known), max(known)

    def stats(self) -> ModelStats:
        generated = self.generated if self.captured else self.counted
        return ModelStats(captured=self.captured, flawed=self.flawed, generated=generated, policy=self.policy)


def _usage(data: bytes) -> _Usage | None:
    try:
        return _REPLY.decode(data).usage
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _nested(data: bytes) -> RolloutStats | None:
    try:
        return _ENDED.decode(data).stats
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
