"""One line for each rollout: what `list` shows, filters and counts, and what `show` begins with.

A row is made of the rollout's request and its terminal event alone, so that a whole run is listed in one pass over
these. Memory grows with the rollouts in flight, not with the run.
"""

from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Final, TypeVar

import msgspec

from contracts.events import Recorded
from contracts.rollouts import Revised, RolloutStats
from replay.errors import BrokenHistory
from replay.facts import Facts
from replay.source import Source
from replay.trajectory import Decoded


class Row(msgspec.Struct, kw_only=True):
    """A rollout at a glance."""

    rollout_id: str
    run_id: str = ""
    task_index: int = 0
    rollout_index: int = 0
    agent: str = ""
    """Name of the instance."""
    environment: str = ""
    """Name of the resources instance that the agent works in."""
    outcome: str = "in flight"
    """`completed`, `failed`, `cancelled`, or `in flight`."""
    reward: float | None = None
    """Of the latest revision; None where there is none: a failure is never a reward."""
    revisions: int = 0
    """How often a verifier scored it again."""
    first_reward: float | None = None
    """The reward that it ended with, where it was revised."""
    error: str = ""
    """Kind of the failure."""
    turns: int | None = None
    tool_calls: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    duration_s: float | None = None
    """Seconds from request to end."""
    queue_s: float | None = None
    """Seconds of that until an agent worker took it."""
    policy: tuple[int, int] | None = None
    """The oldest and the newest policy version that generated any of its tokens, where one is known."""
    parent: str = ""
    """What it is a fork, or a later attempt, of."""
    started: datetime
    """When it was requested."""


AnyRow = TypeVar("AnyRow", bound=Row)


class _Request(msgspec.Struct):
    """The request without its task."""

    agent: str = ""
    run_id: str = ""
    task_index: int = 0
    rollout_index: int = 0
    parent: str = ""
    policy_version: int | None = None


class _Ending(msgspec.Struct):
    """A terminal event's data without the response."""

    reward: float | None = None
    kind: str = ""
    stats: RolloutStats | None = None


_REQUEST: Final = msgspec.json.Decoder(_Request)
_ENDING: Final = msgspec.json.Decoder(_Ending)
_REVISED: Final = msgspec.json.Decoder(Revised)

Keep = Callable[[Row], bool]
"""Whether a row is wanted."""


def requested_row(recorded: Recorded, data: bytes, facts: Facts) -> Row:
    """The row of a rollout that has not ended, from its request. Raises `BrokenHistory`."""
    request = _decode(recorded, data, _REQUEST)
    return Row(
        rollout_id=recorded.event.rolloutid,
        run_id=request.run_id,
        task_index=request.task_index,
        rollout_index=request.rollout_index,
        agent=request.agent,
        environment=facts.environment(request.agent),
        policy=None if request.policy_version is None else (request.policy_version, request.policy_version),
        parent=request.parent,
        started=recorded.event.time,
    )


def end(row: Row, recorded: Recorded, data: bytes) -> Row:
    """Completes a row with the rollout's terminal event. Raises `BrokenHistory`."""
    ending = _decode(recorded, data, _ENDING)
    row.outcome = recorded.event.type.partition(".")[2]
    row.error = ending.kind
    row.reward = ending.reward if row.outcome == "completed" else None
    row.duration_s = (recorded.event.time - row.started).total_seconds()
    if (stats := ending.stats) is not None:
        row.turns, row.tool_calls = stats.turns, stats.tool_calls
        row.input_tokens, row.output_tokens = stats.usage.input_tokens, stats.usage.output_tokens
        row.queue_s = stats.timings.queue_s
        if not isinstance(stats.policy, msgspec.UnsetType):
            row.policy = stats.policy
    return row


def outcome_text(outcome: str, error: str) -> str:
    """How a rollout ended, with the kind of its failure where that says more."""
    return f"{outcome}: {error}" if error not in ("", outcome) else outcome


async def rows(source: Source, facts: Facts, run_id: str | None = None) -> AsyncIterator[Row]:
    """The rollouts in the order in which they ended, then those in flight in the order of their requests."""

    def begin(recorded: Recorded, data: bytes) -> Row:
        return requested_row(recorded, data, facts)

    async for row in made(source, begin, end, run_id):
        yield row


async def made(
    source: Source,
    begin: Callable[[Recorded, bytes], AnyRow],
    complete: Callable[[AnyRow, Recorded, bytes], object],
    run_id: str | None = None,
) -> AsyncIterator[AnyRow]:
    """`rows`, of a type that has more in it."""
    revised = await latest_revisions(source)
    open_rows: dict[str, AnyRow] = {}
    async for recorded in source.outline():
        rollout = recorded.event.rolloutid
        if recorded.event.type == "rollout.requested":
            row = begin(recorded, await source.data(recorded.event))
            if run_id is None or row.run_id == run_id:
                open_rows[rollout] = row
        elif (row_or_none := open_rows.pop(rollout, None)) is not None:
            row = row_or_none
            complete(row, recorded, await source.data(recorded.event))
            if row.reward is not None and rollout in revised:
                row.first_reward, (row.revisions, row.reward) = row.reward, revised[rollout]
            yield row
    for row in sorted(open_rows.values(), key=lambda row: row.started):
        yield row


async def latest_revisions(source: Source) -> dict[str, tuple[int, float]]:
    """By rollout, how often it was scored again and the latest reward."""
    found: dict[str, tuple[int, float]] = {}
    async for recorded in source.revisions():
        revised = _decode(recorded, await source.data(recorded.event), _REVISED)
        number = int(recorded.subject.rpartition(".")[2])
        rollout = recorded.event.rolloutid
        if number > found.get(rollout, (0, 0.0))[0]:
            found[rollout] = number, revised.reward
    return found


def selection(
    *,
    agent: str | None = None,
    environment: str | None = None,
    reward_below: float | None = None,
    reward_above: float | None = None,
    failed: bool = False,
) -> Keep:
    """Rows that meet every given condition. A rollout without a reward is neither below nor above any."""
    return lambda row: (
        agent in (None, row.agent)
        and environment in (None, row.environment)
        and (reward_below is None or (row.reward is not None and row.reward < reward_below))
        and (reward_above is None or (row.reward is not None and row.reward > reward_above))
        and (not failed or row.outcome in ("failed", "cancelled"))
    )


def _decode(recorded: Recorded, data: bytes, decoder: msgspec.json.Decoder[Decoded]) -> Decoded:
    try:
        return decoder.decode(data)
    except msgspec.DecodeError as error:
        raise BrokenHistory(f"event {recorded.seq} ({recorded.event.type}): {error}") from error
