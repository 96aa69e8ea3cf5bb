"""What does a run come to, in figures? Rewards, lengths, tools, failures, times, policy versions.

Called by `replay stats`. It goes once through the requests and ends of all rollouts, and, unless only these are wanted,
through the events of each rollout, one event at a time: memory grows neither with the run nor with a rollout, but for
the rollouts in flight and those that were scored again. It draws nothing.
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

import msgspec

from contracts.events import Event, Recorded
from contracts.rollouts import RolloutStats
from replay.errors import BrokenHistory
from replay.facts import Facts
from replay.rows import Keep, Row, end, latest_revisions, requested_row
from replay.source import Source
from replay.spread import Spread, SpreadFigures

T = TypeVar("T")

NAMES: Final = 200
"""Tools, kinds of failure and the like that are told apart: a model may make up names without end."""
OTHERS: Final = "(others)"
EXAMPLES: Final = 3


class Failure(msgspec.Struct, kw_only=True):
    """One kind of failure."""

    count: int = 0
    examples: list[str] = []
    """IDs of some rollouts."""


class CallFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of one kind, or of one tool. Times in seconds."""

    calls: int
    failed: int
    """That were answered with an error."""
    unanswered: int
    worked: SpreadFigures
    """How long the callee took."""
    waited: SpreadFigures
    """How long a call was in the queue and on its way."""


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A run, or all of a log, at a glance. Times in seconds."""

    run_id: str | None
    """None where they are of several runs."""
    rollouts: int
    outcomes: dict[str, int]
    """`completed`, `failed`, `cancelled`, `in flight`."""
    agents: dict[str, int]
    failures: dict[str, Failure]
    """By the kind of the error."""
    reward: SpreadFigures
    reward_by_agent: dict[str, SpreadFigures]
    turns: SpreadFigures
    tool_calls: SpreadFigures
    input_tokens: SpreadFigures
    output_tokens: SpreadFigures
    duration_s: SpreadFigures
    queue_s: SpreadFigures
    """From a rollout's request until an agent worker took it."""
    model_s: SpreadFigures
    """Of a whole rollout, as `tools_s` and `verify_s`."""
    tools_s: SpreadFigures
    verify_s: SpreadFigures
    adoptions: int
    """Times that a worker took a rollout over from another."""
    policy_versions: dict[str, int]
    """Rollouts by the oldest policy version that generated any of their tokens."""
    wall_s: float | None
    """From the first request to the last end."""
    calls: dict[str, CallFigures] | None = None
    """By what is called: `model`, `tool`, `verify`, …; None where calls were not looked at."""
    tools: dict[str, CallFigures] | None = None
    """By the tool's name."""


class _Stats(msgspec.Struct):
    stats: RolloutStats | None = None


class _Tool(msgspec.Struct):
    name: str = ""


_STATS: Final = msgspec.json.Decoder(_Stats)
_TOOL: Final = msgspec.json.Decoder(_Tool)
_ENDS: Final = (".replied", ".failed")


class Counter:
    """Counts rollouts; `figures` says what they come to."""

    def __init__(self) -> None:
        self.rollouts = self.adoptions = 0
        self.outcomes: dict[str, int] = {}
        self.agents: dict[str, int] = {}
        self.failures: dict[str, Failure] = {}
        self.policies: dict[str, int] = {}
        self.rewards: dict[str, Spread] = {}
        self.spreads = {name: Spread() for name in _SPREADS}
        self.calls: dict[str, _Calls] | None = None
        self.tools: dict[str, _Calls] | None = None
        self._first = self._last = 0.0

    def ended(self, row: Row, stats: RolloutStats | None) -> None:
        """A rollout, with what its worker counted if it has ended."""
        self._count(row)
        add = self.spreads
        if row.duration_s is not None:
            add["duration_s"].add(row.duration_s)
            self._last = max(self._last, row.started.timestamp() + row.duration_s)
        if row.reward is not None:
            add["reward"].add(row.reward)
            _of(self.rewards, row.agent, Spread).add(row.reward)
        if row.outcome in ("failed", "cancelled"):
            failure = _of(self.failures, row.error or row.outcome, Failure)
            failure.count += 1
            if len(failure.examples) < EXAMPLES:
                failure.examples.append(row.rollout_id)
        if stats is None:
            return
        add["turns"].add(stats.turns)
        add["tool_calls"].add(stats.tool_calls)
        add["input_tokens"].add(stats.usage.input_tokens)
        add["output_tokens"].add(stats.usage.output_tokens)
        for name in ("queue_s", "model_s", "tools_s", "verify_s"):
            add[name].add(getattr(stats.timings, name))
        self.adoptions += stats.adoptions
        if isinstance(stats.policy, tuple):
            _add(self.policies, str(stats.policy[0]))

    def _count(self, row: Row) -> None:
        self.rollouts += 1
        _add(self.outcomes, row.outcome)
        _add(self.agents, row.agent)
        at = row.started.timestamp()
        self._first = at if self.rollouts == 1 else min(self._first, at)

    async def look_into(self, source: Source, rollout_id: str) -> None:
        """Counts the calls of one rollout."""
        self.calls, self.tools = self.calls or {}, self.tools or {}
        waiting: dict[str, tuple[list[_Calls], Event]] = {}
        async for recorded in source.stream(rollout_id):
            event = recorded.event
            what, _, happened = event.type.partition(".")
            if what in ("rollout", "timer") or not event.callkey:
                continue
            if happened == "requested":
                counted = [_of(self.calls, what, _Calls)]
                if what == "tool":
                    counted.append(_of(self.tools, await _name(source, recorded), _Calls))
                for calls in counted:
                    calls.asked()
                waiting[event.callkey] = counted, msgspec.structs.replace(event, data=msgspec.Raw(b"null"))
            elif event.type.endswith(_ENDS) and event.callkey in waiting:
                counted, asked = waiting.pop(event.callkey)
                took = (event.time - asked.time).total_seconds()
                worked = None if what == "agent" else event.elapsed  # nobody measures how long an agent worked
                for calls in counted:
                    calls.answered(took, worked, failed=happened == "failed")

    def figures(self, run_id: str | None) -> RunFigures:
        """All of it."""
        return RunFigures(
            run_id=run_id,
            rollouts=self.rollouts,
            outcomes=_largest_first(self.outcomes),
            agents=_largest_first(self.agents),
            failures=dict(sorted(self.failures.items(), key=lambda entry: -entry[1].count)),
            reward_by_agent={name: spread.figures() for name, spread in sorted(self.rewards.items())},
            adoptions=self.adoptions,
            policy_versions=dict(sorted(self.policies.items(), key=lambda entry: (len(entry[0]), entry[0]))),
            wall_s=self._last - self._first if self._last else None,
            calls=_told(self.calls),
            tools=_told(self.tools),
            **{name: spread.figures() for name, spread in self.spreads.items()},
        )


class _Calls:
    def __init__(self) -> None:
        self.count = self.open = self.failed = 0
        self.worked, self.waited = Spread(), Spread()

    def asked(self) -> None:
        self.count += 1
        self.open += 1

    def answered(self, took: float, worked: float | None, *, failed: bool) -> None:
        self.open -= 1
        self.failed += failed
        self.worked.add(took if worked is None else worked)
        if worked is not None:
            self.waited.add(max(0.0, took - worked))


async def figures_of(
    source: Source, facts: Facts, run_id: str | None, keep: Keep = lambda _: True, *, calls: bool = True
) -> RunFigures:
    """The figures of a run, or of all runs of a source; of rollouts that `keep` wants.

    Raises `BrokenHistory`.
    """
    counter = Counter()
    open_rows: dict[str, Row] = {}
    runs: set[str] = set()

    async def take(row: Row, stats: RolloutStats | None) -> None:
        if keep(row):
            counter.ended(row, stats)
            runs.add(row.run_id)
            if calls:
                await counter.look_into(source, row.rollout_id)

    revised = await latest_revisions(source)
    async for recorded in source.outline():
        rollout, data = recorded.event.rolloutid, await source.data(recorded.event)
        if recorded.event.type == "rollout.requested":
            row = requested_row(recorded, data, facts)
            if run_id is None or row.run_id == run_id:
                open_rows[rollout] = row
        elif rollout in open_rows:
            row = end(open_rows.pop(rollout), recorded, data)
            if row.reward is not None and rollout in revised:
                row.reward = revised[rollout][1]
            await take(row, _stats(recorded, data))
    for row in open_rows.values():
        await take(row, None)
    return counter.figures(runs.pop() if len(runs) == 1 else None)


_SPREADS: Final = (
    "reward",
    "turns",
    "tool_calls",
    "input_tokens",
    "output_tokens",
    "duration_s",
    "queue_s",
    "model_s",
    "tools_s",
    "verify_s",
)


def _stats(recorded: Recorded, data: bytes) -> RolloutStats | None:
    try:
        return _STATS.decode(data).stats
    except msgspec.DecodeError as error:
        raise BrokenHistory(f"event {recorded.seq} ({recorded.event.type}): {error}") from error


async def _name(source: Source, recorded: Recorded) -> str:
    try:
        return _TOOL.decode(await source.data(recorded.event)).name or "(without a name)"
    except msgspec.DecodeError:
        return "(unreadable)"


def _of(named: dict[str, T], name: str, make: Callable[[], T]) -> T:
    if name not in named and len(named) >= NAMES:
        name = OTHERS
    if name not in named:
        named[name] = make()
    return named[name]


def _add(counts: dict[str, int], name: str) -> None:
    if name not in counts and len(counts) >= NAMES:
        name = OTHERS
    counts[name] = counts.get(name, 0) + 1


def _largest_first(counts: dict[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda entry: -entry[1]))


def _told(named: dict[str, _Calls] | None) -> dict[str, CallFigures] | None:
    if named is None:
        return None
    ordered: Iterable[tuple[str, _Calls]] = sorted(named.items(), key=lambda entry: -entry[1].count)
    return {
        name: CallFigures(
            calls=calls.count,
            failed=calls.failed,
            unanswered=calls.open,
            worked=calls.worked.figures(),
            waited=calls.waited.figures(),
        )
        for name, calls in ordered
    }
