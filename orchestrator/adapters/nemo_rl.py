"""NeMo RL: the stream of rollouts that its NeMo Gym environment takes from `run_examples`.

A row in, its result line out, in the order in which rollouts finish: each awaitable gives `(row, result)`, and the row
has the `_rowidx` that it came with. The last output item of each model call carries the three token fields; that the
tokens go on from turn to turn, as NeMo RL asserts, is checked here, where the rollout can be named.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any, Final, Literal

from orchestrator.delivered import Batch, Finished
from orchestrator.errors import (
    AdapterError,
    FeedStarved,
    InputError,
    NotContiguous,
    NoTrajectory,
    Problem,
    UsageError,
)
from orchestrator.submission import bad_task
from orchestrator.token_fields import FIELDS
from orchestrator.trainer import Trainer
from orchestrator.trainer_options import PATIENCE_S, check_seconds

CALL: Final = "_jetgym_call"
"""A field of the task: which call of `run_examples` asked. The same row asked for in two calls is two rollouts."""
PLACE: Final = "_jetgym_place"
INDEX: Final = "_rowidx"
"""NeMo RL's own number of a row."""

Json = dict[str, Any]
OnBreak = Literal["raise", "mask"]
_PROMPT, _GENERATED, _ = FIELDS


@dataclass
class _Call:
    """One call of `run_examples`."""

    examples: Sequence[Json]
    open: int
    """Rollouts that have not ended."""
    ended: "asyncio.Queue[tuple[int, Json | AdapterError, Batch] | Exception]" = field(default_factory=asyncio.Queue)


class RolloutStream:
    """What NeMo RL calls its rollout collection helper, over a deployment of JetGym."""

    def __init__(
        self,
        trainer: Trainer,
        *,
        agent: str | None = None,
        on_break: OnBreak = "raise",
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Takes over the trainer's feed.

        Args:
            trainer: opened without `max_lag`: NeMo RL paces itself, and waits for each rollout, however stale.
            agent: name of the agent for rows without an `agent_ref`; may be left out where there is one.
            on_break: what becomes of a rollout whose tokens do not go on from turn to turn: its awaitable raises
                `NotContiguous`, or its first stretch keeps its tokens and the row is marked `mask_sample`, not to be
                trained on.
            patience_s: seconds in which a rollout must end while any is awaited; else whatever is awaited raises
                `FeedStarved`, after twice as long at most. Where an agent's `deadline_s` is longer, give more than
                that; `math.inf`: for ever.

        Raises `UsageError` for a trainer with `max_lag`.
        """
        if trainer.pacing.max_lag is not None:
            raise UsageError("NeMo RL waits for every rollout that it asks for: open its trainer without max_lag")
        check_seconds("patience_s", patience_s)
        self._trainer, self._agent, self._on_break, self._patience_s = trainer, agent, on_break, patience_s
        self._calls: dict[str, _Call] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._feeding: asyncio.Task[None] | None = None
        self._error: Exception | None = None
        self._since = 0.0
        """When it began that something is awaited."""
        self.masked: Counter[str] = Counter()
        """Rollouts that were marked `mask_sample`, by reason."""

    def run_examples(
        self,
        examples: Sequence[Json],
        head_server_config: object = None,  # noqa: ARG002 - NeMo RL passes it
    ) -> Iterator[Awaitable[tuple[Json, Json]]]:
        """Asks for a rollout of each row; as many awaitables as rows, the first for the rollout that finishes first.

        An awaitable raises `NoTrajectory` for a rollout that failed or has no tokens, `NotContiguous` as `on_break`
        says, `InputError` or `UsageError` where a row of the call cannot be asked for, `AdapterError` where the stream
        was closed, and what befell the log.
        A rollout is committed when its awaitable is done.
        """
        if self._error is not None:
            raise self._error
        if not examples:
            return iter(())
        if not self._calls:
            self._since = time.monotonic()
        name, call = token_hex(8), _Call(examples, len(examples))
        self._calls[name] = call
        self._keep(self._submit(name, call))
        if self._feeding is None:
            self._feeding = self._keep(self._feed())
        return (self._next(call) for _ in examples)

    async def close(self) -> None:
        """Ends what runs; what was not awaited comes again to nobody, and what is awaited raises `AdapterError`."""
        for task in self._tasks:
            task.cancel()
        self._fail(AdapterError("the stream of rollouts was closed"))
        for task in list(self._tasks):
            with suppress(asyncio.CancelledError):
                await task

    async def _next(self, call: _Call) -> tuple[Json, Json]:
        found = await call.ended.get()
        if isinstance(found, Exception):
            call.ended.put_nowait(found)  # for the others that wait
            raise found
        place, result, batch = found
        await batch.commit()
        if isinstance(result, AdapterError):
            raise result
        return call.examples[place], result

    async def _submit(self, name: str, call: _Call) -> None:
        try:
            for place, row in enumerate(call.examples):
                agent = _agent_of(row) or self._agent
                await self._trainer.submit([{**row, CALL: name, PLACE: place}], agent, group_size=1)
        except (InputError, UsageError) as error:  # a row of this call: those of others go on
            self._calls.pop(name, None)
            wrong = error.problems if isinstance(error, InputError) else ()
            told = [bad_task(problem._replace(where=f"row {place}")) for problem in wrong]
            call.ended.put_nowait(told[0] if told else error)

    async def _feed(self) -> None:
        while True:
            try:
                await self._take()
            except FeedStarved:
                if self._calls and time.monotonic() - self._since >= self._patience_s:
                    raise
            else:
                return

    async def _take(self) -> None:
        async for batch in self._trainer.feed(rollouts=1, patience_s=self._patience_s):
            for rollout in batch.rollouts:
                line = await rollout.line()
                name, place = line.pop(CALL, ""), line.pop(PLACE, 0)
                call = self._calls.get(name)
                if call is None:  # asked for by a process that is gone
                    await batch.commit()
                    continue
                call.ended.put_nowait((place, self._result(rollout, line, call.examples[place]), batch))
                call.open -= 1
                if not call.open:
                    del self._calls[name]

    def _result(self, rollout: Finished, line: Json, row: Json) -> Json | AdapterError:
        which = f"rollout {rollout.rollout_id}" + (f" (_rowidx {row[INDEX]})" if INDEX in row else "")
        if rollout.outcome != "completed":
            return NoTrajectory(f"{which} {rollout.outcome}: {rollout.error}: {rollout.message}")
        response = line["response"]
        output = response.get("output") if isinstance(response, dict) else None
        if not isinstance(output, list) or not all(isinstance(item, dict) for item in output):
            return NoTrajectory(f"{which}: its response has no list of output items")
        kept = contiguous(output)
        if kept == 0:
            return NoTrajectory(f"{which}: none of its output items has tokens")
        if kept < len(output):
            if self._on_break == "raise":
                return NotContiguous(
                    f"{which}: the prompt of output item {kept} does not begin with the tokens of the turns before it "
                    f"(`replay show {rollout.rollout_id}`)"
                )
            line["response"]["output"] = [*output[:kept], *map(_without_tokens, output[kept:])]
            line["mask_sample"] = True
            self.masked["not_contiguous"] += 1
        return line

    def _keep(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Runs beside everything else; if it fails, so does everything that is awaited."""

        async def run() -> None:
            try:
                await work
            except Exception as error:  # noqa: BLE001 - raised where NeMo RL waits
                self._fail(error)

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _fail(self, error: Exception) -> None:
        """Nothing more will come."""
        self._error = error
        for call in self._calls.values():
            call.ended.put_nowait(error)


def _agent_of(row: object) -> str | None:
    """The agent that a row names, if it does; raises `InputError` for what is no row."""
    if not isinstance(row, Mapping):
        raise bad_task(Problem("", "", f"is no object, but {type(row).__name__}"))
    named = row.get("agent_ref") or {}
    if not isinstance(named, Mapping) or not isinstance(named.get("name", ""), str):
        raise bad_task(Problem("", "agent_ref", 'is no object with the "name" of an agent'))
    return named.get("name")


def contiguous(output: Sequence[Mapping[str, Any]]) -> int:
    """So many items come before the first whose prompt does not go on from the tokens so far; 0 if none has tokens."""
    seen: list[int] = []
    for place, item in enumerate(output):
        if _GENERATED not in item:
            continue
        if item[_PROMPT][: len(seen)] != seen:
            return place
        seen = item[_PROMPT] + item[_GENERATED]
    return len(output) if seen else 0


def _without_tokens(item: Json) -> Json:
    return {name: value for name, value in item.items() if name not in FIELDS}
