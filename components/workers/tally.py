"""Counts what a rollout used, from the replies that pass by: tokens, turns, tool calls, seconds, captures.

What a nested rollout used is in its reply, and counts for its caller too. Pure; the agent worker feeds it every reply,
recorded or live, so that an adopted rollout counts as if it had never moved. A reply that it cannot read is counted as
far as it can: what a model says must not stop a rollout here.
"""

from datetime import datetime

import msgspec

from contracts.events import NOTHING, Event
from contracts.rollouts import RolloutStats, Timings, Usage


class _Usage(msgspec.Struct):
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0


class _Reply(msgspec.Struct):
    usage: _Usage | None = None


class _Ended(msgspec.Struct):
    stats: RolloutStats | None = None


_TOKENS, _FLAW = b'"generated":', b'"flaw":'
"""No text in a capture has them in it: its quotes would be escaped."""
_REPLY = msgspec.json.Decoder(_Reply)
_ENDED = msgspec.json.Decoder(_Ended)


class Tally:
    """The running counts of one rollout."""

    __slots__ = (
        "_captured",
        "_flawed",
        "_input",
        "_models",
        "_output",
        "_policy",
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
        self._input = self._output = self._total = self._turns = self._tools = self._captured = self._flawed = 0
        self._models: dict[str, None] = {}
        self._policy: list[int] = []
        """The oldest and the newest version."""
        self.adoptions = 0

    def add(self, reply: Event, data: bytes) -> None:
        """Counts one reply."""
        call, _, outcome = reply.type.partition(".")
        self._took(call, reply.elapsed)
        if call == "tool":
            self._tools += 1
        elif call == "model" and outcome == "replied":
            self._turns += 1
            self._look_at_tokens(reply)
            self._models[reply.source.removeprefix("models/").partition("/")[0]] = None
            self._generated_by(reply.policy or ())
            if (usage := _usage(data)) is not None:
                self._input += usage.input_tokens
                self._output += usage.output_tokens
                self._total += usage.total_tokens
        elif call == "agent" and (nested := _nested(data)) is not None:
            self._add_nested(nested)

    def _look_at_tokens(self, reply: Event) -> None:
        """By the names of the fields that a capture has: to decode the tokens of each call would cost too much."""
        if reply.captureref:
            self._captured += 1
        elif reply.capture != NOTHING:
            capture = bytes(reply.capture)
            self._captured += _TOKENS in capture
            self._flawed += _FLAW in capture

    def _add_nested(self, nested: RolloutStats) -> None:
        self._input += nested.usage.input_tokens
        self._output += nested.usage.output_tokens
        self._total += nested.usage.total_tokens
        self._turns += nested.turns
        self._tools += nested.tool_calls
        self._captured += nested.captured
        self._flawed += nested.flawed
        self._models |= dict.fromkeys(nested.models)
        self._generated_by(() if nested.policy is msgspec.UNSET else nested.policy)
        times = nested.timings
        for call, seconds in (("model", times.model_s), ("tool", times.tools_s), ("verify", times.verify_s)):
            self._took(call, seconds)

    def _took(self, call: str, seconds: float) -> None:
        self._seconds[call] = self._seconds.get(call, 0.0) + seconds

    def _generated_by(self, versions: tuple[int, ...]) -> None:
        if versions:
            known = [*self._policy, *versions]
            self._policy = [min(known), max(known)]

    def stats(self, requested: datetime, now: datetime) -> RolloutStats:
        """The counts so far; `requested` is the time of the rollout's request. Clocks differ: no time is negative."""
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
            captured=self._captured,
            flawed=self._flawed,
            policy=(self._policy[0], self._policy[1]) if self._policy else msgspec.UNSET,
        )


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
