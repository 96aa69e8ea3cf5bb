"""How do the samples of a run leave its log?

Finds the rollouts of a run that completed, reads their samples a few at a time, and hands them to a writer of files,
with the latest reward where a rollout was scored again. What is left out is counted: rollouts that did not complete,
those without a token to train on, samples that are longer than a packed row. Called by `jetgym export samples`; it
never writes into the log.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import suppress
from typing import Final

import msgspec

from bus import Bus
from bus.errors import BlobLost
from contracts.ids import ROOT_CALL
from contracts.rollouts import Revised
from contracts.samples import BreakKind, RolloutSamples
from orchestrator.errors import UsageError, nearest
from orchestrator.hints import counted
from orchestrator.revisions import latest_revisions
from orchestrator.sample_files import RowWriter
from orchestrator.sample_rows import Packer, Row, Scored, sample_row
from orchestrator.samples import read_samples

READERS: Final = 16
"""Rollouts that are read at once."""


class Exported(msgspec.Struct, kw_only=True):
    """What was written, and what was not."""

    run_id: str
    rollouts: int = 0
    """That have samples here."""
    samples: int = 0
    rows: int = 0
    """As many as samples, unless they were packed."""
    tokens: int = 0
    trained: int = 0
    """Tokens under a mask."""
    breaks: dict[BreakKind, int] = {}
    tokenless_calls: int = 0
    """Model calls without tokens, of the rollouts that completed."""
    refused_calls: int = 0
    """Of these, the calls whose engine gave tokens that cannot be trusted."""
    tokenless_rollouts: int = 0
    """Rollouts that completed and have no token to train on: none of their calls is in a sample."""
    revised: int = 0
    """Rollouts with samples whose reward is that of a later verifier (`replay reverify`)."""
    not_completed: int = 0
    """Rollouts that failed, were cancelled, or have not ended."""
    too_long: tuple[str, ...] = ()
    """Samples that are longer than a packed row, as `<rollout>/<branch>`: they are in none."""


class Completed(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout to export."""

    rollout_id: str
    scored: Scored
    models: tuple[str, ...]
    """Names of the model instances that were called in it."""
    revised: bool
    """Whether it was scored again."""


class _Request(msgspec.Struct):
    run_id: str = ""
    agent: str = ""
    group: str = ""
    task_index: int = 0
    rollout_index: int = 0
    attempt: int = 0


class _Stats(msgspec.Struct):
    models: tuple[str, ...] = ()


class _Result(msgspec.Struct):
    reward: float
    extra: dict[str, msgspec.Raw] = {}
    stats: _Stats | None = None


_REQUEST: Final = msgspec.json.Decoder(_Request)
_RESULT: Final = msgspec.json.Decoder(_Result)
_LOST: Final = msgspec.DecodeError, UnicodeDecodeError, BlobLost
"""A power cut may take what events refer to."""


async def completed(bus: Bus, run: str) -> tuple[list[Completed], int]:
    """The rollouts of a run that completed, in the order of their ends, and how many others there are."""
    found: list[Completed] = []
    others = 0
    for partition in range(bus.config.partitions):
        requests: dict[str, _Request] = {}
        revisions = await latest_revisions(bus, partition, run)
        asked = f"{bus.config.namespace}.{partition}.agents.*.*.request.*.{ROOT_CALL}"
        async for recorded in bus.scan(asked, bus.subjects.ended_of(partition, run), partition=partition):
            event = recorded.event
            if event.type == "rollout.requested":
                if event.replyto == bus.subjects.ended(run, event.rolloutid):
                    with suppress(*_LOST):
                        requests[event.rolloutid] = _REQUEST.decode(await bus.fetch_data(event))
            elif (request := requests.pop(event.rolloutid, None)) is None or event.type != "rollout.completed":
                others += 1
            else:
                try:
                    result = _RESULT.decode(await bus.fetch_data(event))
                except _LOST:
                    others += 1
                    continue
                models = result.stats.models if result.stats is not None else ()
                _, revised = revisions.get(event.rolloutid, (0, None))
                scored = _scored(run, request, result if revised is None else revised)
                found.append(
                    Completed(rollout_id=event.rolloutid, scored=scored, models=models, revised=revised is not None)
                )
        others += len(requests)
    return found, others


def _scored(run: str, request: _Request, result: _Result | Revised) -> Scored:
    return Scored(
        run_id=run,
        agent=request.agent,
        group=request.group or f"{run}-{request.task_index:05d}",
        task_index=request.task_index,
        rollout_index=request.rollout_index,
        reward=result.reward,
        reward_components=bytes(result.extra.get("reward_components", b"{}")).decode(),
    )


async def export_samples(
    bus: Bus,
    run: str,
    rollouts: Collection[Completed],
    into: RowWriter,
    *,
    tokenizer: str = "",
    template: str = "",
    models: Collection[str] | None = None,
    pack: int | None = None,
    on_rollout: Callable[[], None] = lambda: None,
) -> Exported:
    """Writes the samples of these rollouts.

    Args:
        bus: the log.
        run: whose rollouts they are.
        rollouts: see `completed`.
        into: where the rows go.
        tokenizer: digest of the tokenizer that the tokens will be read under; not looked at, if not given.
        template: digest of the chat template, likewise.
        models: names of the model instances whose tokens are wanted; all, if not given.
        pack: put samples into rows of at most so many tokens.
        on_rollout: called after each rollout.

    Raises `UsageError` where there is nothing to write, `OtherTokenizer`, `TwoPayloads`, `BusError`, `OSError`.
    """
    told = Exported(run_id=run)
    called = {model for rollout in rollouts for model in rollout.models}
    for model in models or () if rollouts else ():
        if model not in called:
            raise UsageError(f"no rollout of {run} that completed called model {model!r}; {nearest(model, [*called])}")
    packer = Packer(pack) if pack is not None else None
    kinds: Counter[BreakKind] = Counter()
    flaws: Counter[str] = Counter()

    def write(rows: Iterable[Row]) -> None:
        for row in rows:
            into.add(row)
            told.rows += 1

    async for rollout, found in _read(bus, rollouts, tokenizer, template, models):
        kinds.update(found.breaks_by_kind)
        fitting = [sample for sample in found.samples if pack is None or len(sample.tokens) <= pack]
        told.rollouts += bool(fitting)
        told.revised += bool(fitting) and rollout.revised
        told.samples += len(fitting)
        told.tokens += sum(len(sample.tokens) for sample in fitting)
        told.trained += sum(sample.trained for sample in fitting)
        told.tokenless_rollouts += not found.trainable
        told.tokenless_calls += len(found.tokenless)
        told.refused_calls += len(found.refused)
        flaws.update(call.why for call in found.refused)
        for sample in found.samples:
            rows = (sample_row(sample, rollout.scored),) if packer is None else packer.add(sample, rollout.scored)
            write(rows)
        on_rollout()
    if packer is not None:
        write(packer.rest())
        told.too_long = tuple(packer.too_long)
    told.breaks = dict(kinds)
    if not told.rows:
        raise UsageError(f"{run} has nothing to write: {_nothing(told, flaws, pack)}")
    return told


def _nothing(told: Exported, flaws: Counter[str], pack: int | None) -> str:
    if told.too_long:
        return (
            f"each of its {len(told.too_long):,} samples is longer than a row of {pack:,} tokens: give a larger --pack"
        )
    if not told.tokenless_rollouts:
        return "none of its rollouts completed"
    if flaws:
        (why, count), *_ = flaws.most_common(1)
        return f"the tokens of {counted(flaws.total(), 'model call')} were refused, {count:,} of them since: {why}"
    if not told.tokenless_calls:
        return "no rollout that completed called a model"
    return "no token to train on was captured of those that completed: set `token_ids: true` in the model's config"


async def _read(
    bus: Bus, rollouts: Iterable[Completed], tokenizer: str, template: str, models: Collection[str] | None
) -> AsyncIterator[tuple[Completed, RolloutSamples]]:
    """The samples of the rollouts, in their order, a few read ahead."""
    ahead: deque[tuple[Completed, asyncio.Task[RolloutSamples]]] = deque()
    try:
        for rollout in rollouts:
            reading = read_samples(
                bus, rollout.rollout_id, ended=True, tokenizer=tokenizer, template=template, models=models
            )
            ahead.append((rollout, asyncio.create_task(reading)))
            if len(ahead) == READERS:
                first, task = ahead.popleft()
                yield first, await task
        while ahead:
            first, task = ahead.popleft()
            yield first, await task
    finally:
        for _, task in ahead:
            task.cancel()
        for _, task in ahead:
            with suppress(asyncio.CancelledError, Exception):
                await task
