"""TRL: a rollout worker for `AsyncGRPOTrainer(rollout_worker=…)` (`trl.experimental.async_grpo`).

It has the worker protocol's `rollout_buffer`, `metrics_queue`, `start`, `stop`, `update_model_version` and
`check_health`, and runs a `Trainer` in a thread of its own, since TRL's trainer has no event loop. What TRL has taken
from the buffer is committed when TRL announces its next weights, or stops: what it had taken since before a crash comes
again. The micro-batch that it takes ahead of the one it trains on is among what is committed.
"""

import asyncio
import itertools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from math import inf
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from orchestrator.adapters.trained import Trained, read_group
from orchestrator.delivered import Batch
from orchestrator.errors import WorkerStalled
from orchestrator.submission import AnyTask
from orchestrator.trainer import Trainer
from orchestrator.trainer_options import check_whole

BUFFERED: Final = 1024
"""Samples that wait for TRL at most."""
ROOM_S: Final = 0.05
"""Seconds between two looks for room in the buffer."""
LOOK_S: Final = 1.0
"""Seconds between two looks for what is new of the run."""
ANSWER_S: Final = 120.0
"""Seconds that TRL's thread waits for this one."""


@dataclass(slots=True)
class RolloutSample:
    """One sample, with the fields of TRL's class."""

    prompt: list[dict[str, str]]
    """Empty, as `completion` is: TRL shows them, and trains on the tokens. `replay show` tells a rollout."""
    completion: list[dict[str, str]]
    input_ids: npt.NDArray[np.int64]
    completion_mask: npt.NDArray[np.int64]
    """Of all tokens: 1 where one is trained on."""
    old_log_probs: npt.NDArray[np.float32]
    """Of all tokens; 0 where the mask is 0."""
    advantage: float
    model_version: int
    """The oldest that sampled a token, so that TRL drops what is too stale by its weakest part.

    As TRL counts, which begins from 0 in each process: below 0 for weights of an earlier one.
    """
    group_id: int
    metrics: dict[str, float]
    enqueued_at: float | None = None
    """Seconds since 1970 at which it came into the buffer."""


def rollout_sample(trained: Trained, *, behind: int = 0) -> RolloutSample:
    """The sample as TRL takes it, whose count of versions is so many behind the log's."""
    sample = trained.sample
    return RolloutSample(
        prompt=[],
        completion=[],
        input_ids=sample.tokens.astype(np.int64),
        completion_mask=sample.mask.astype(np.int64),
        old_log_probs=sample.logprobs,
        advantage=trained.advantage,
        model_version=trained.versions[0] - behind,
        group_id=trained.group_number,
        metrics={"reward": trained.reward},
    )


class RolloutWorker:
    """TRL's rollout worker over a deployment of JetGym."""

    def __init__(
        self,
        connect: Callable[[], AbstractAsyncContextManager[Trainer]],
        tasks: Iterable[AnyTask],
        *,
        agent: str | None = None,
        group_size: int = 8,
        epochs: int | None = 1,
        normalize: bool = True,
        tokenizer: str = "",
        template: str = "",
        buffered: int = BUFFERED,
    ) -> None:
        """Starts nothing yet.

        Args:
            connect: opens the trainer: `lambda: Trainer.connect(url, run="grpo-1", groups=…, max_lag=…)`.
            tasks: task lines, or their fields; an endless iterator of ever new tasks too.
            agent: name of the agent's instance; may be left out where there is one.
            group_size: rollouts of each task, TRL's `num_generations`.
            epochs: how often all tasks are asked for; None: without an end, as TRL's own worker does it.
            normalize: divide advantages by the group's standard deviation, as TRL does by default.
            tokenizer: digest of the tokenizer that TRL trains with; not looked at, if not given.
            template: digest of the chat template, likewise.
            buffered: samples that wait for TRL at most.

        Raises `ValueError` for `epochs` that are none, or where the tasks cannot be gone through again.
        """
        if epochs is not None:
            check_whole("epochs", epochs, 1)
        if epochs != 1 and not (isinstance(tasks, Collection) and tasks):
            raise ValueError("several epochs take tasks that can be gone through again, as a list of them")
        self.rollout_buffer: queue.Queue[RolloutSample] = queue.Queue(maxsize=buffered)
        self.metrics_queue: queue.Queue[dict[str, float]] = queue.Queue()
        """Empty: `metrics.json`, `jetgym status` and `replay stats` have what a worker would measure."""
        self._connect, self._tasks, self._agent, self._group_size = connect, tasks, agent, group_size
        self._epochs = epochs
        self._normalize, self._tokenizer, self._template = normalize, tokenizer, template
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._trainer: Trainer | None = None
        self._working: asyncio.Task[None] | None = None
        self._opened = threading.Event()
        self._error: BaseException | None = None
        self._all_given = False
        self._version: int | None = None
        """What TRL said last, as it counts; None: nothing yet."""
        self._behind = 0
        """So many versions TRL's count is behind the log's."""
        self._put, self._at = 0, time.monotonic()
        """Samples put into the buffer, and when anything was last new of the run."""
        self._full: deque[tuple[int, Batch]] = deque()
        """Batches that are in the buffer whole, each with how many samples were put by then."""

    def start(self) -> None:
        """Begins to give samples, also once more after `stop`. Raises what kept the trainer from being opened."""
        self._forget()
        self._at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="jetgym-rollouts", daemon=True)
        self._thread.start()
        self._opened.wait()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Commits what TRL has taken and ends the thread; what is in the buffer comes again next time."""
        if self._thread is None or self._loop is None:
            return
        if self._thread.is_alive() and self._working is not None:
            with suppress(RuntimeError):  # the loop has just ended
                self._loop.call_soon_threadsafe(self._working.cancel)
        self._thread.join(ANSWER_S)

    def _forget(self) -> None:
        """What an earlier start has left: it comes again."""
        self._opened.clear()
        self._error, self._all_given, self._put = None, False, 0
        self._full.clear()
        with suppress(queue.Empty):
            while True:
                self.rollout_buffer.get_nowait()

    def update_model_version(self, model_version: int) -> None:
        """TRL has new weights: what it has taken is committed, and the version announced. Returns when both are.

        Raises `WorkerStalled` where that takes too long, and what kept it from being done.
        """
        self._version = model_version
        if self._trainer is not None:
            self._wait_for(self._updated(self._trainer, model_version))

    def check_health(self, stale_after_s: float) -> None:
        """Raises `WorkerStalled` if the thread died, or the buffer is empty and nothing was new for so many seconds.

        New is what is asked for and what ends, a sample, and a version, which allows for more: TRL may train for as
        long as it wants. TRL gives its `heartbeat_stale_after_s`, which has to be longer than a rollout takes.
        """
        if self._error is not None:
            raise WorkerStalled(f"the rollout worker died: {self._error}") from self._error
        if self._thread is None or not self._thread.is_alive():
            raise WorkerStalled("the rollout worker does not run")
        waited = time.monotonic() - self._at
        if self.rollout_buffer.empty() and waited > stale_after_s:
            raise WorkerStalled(f"nothing was new of the run for {waited:.0f} seconds: {self._why()}")

    def _why(self) -> str:
        """Why nothing was given, as far as it can be told."""
        trainer = self._trainer
        if self._all_given or trainer is None:
            return "there are no more tasks (`epochs` says how often they are asked for)"
        state = trainer.state()
        ended = f"rollouts that have not ended: {state.unfinished_rollouts:,}"
        given = f"groups that were given and not trained on: {state.waiting:,}"
        return f"{ended}, {given}; `heartbeat_stale_after_s` has to be longer than a rollout takes"

    # --- in the thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            asyncio.run(self._work())
        except asyncio.CancelledError:
            return
        except BaseException as error:  # noqa: BLE001 - `check_health` raises it where TRL can see it
            self._error = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error
        finally:
            self._trainer = None
            self._opened.set()

    async def _work(self) -> None:
        async with self._connect() as trainer:
            self._loop, self._working = asyncio.get_running_loop(), asyncio.current_task()
            await self._agree(trainer)
            self._trainer = trainer
            self._opened.set()
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._submit(trainer))
                    group.create_task(self._give(trainer))
                    group.create_task(self._look(trainer))
            except asyncio.CancelledError:  # `stop`
                await self._commit()
                raise

    async def _agree(self, trainer: Trainer) -> None:
        """Puts TRL's count beside the log's, which goes on from process to process and from run to run.

        What TRL begins with is a version of its own: it may be other weights than those that were announced last, and
        what an earlier process has used up of a version is not counted against it.
        """
        counted, announced = self._version or 0, trainer.version
        new = max(counted, announced + 1) if announced or trainer.state().consumed else counted
        self._behind = new - counted
        await trainer.policy_updated(new)

    async def _submit(self, trainer: Trainer) -> None:
        for epoch in itertools.count() if self._epochs is None else range(self._epochs):
            await trainer.submit(self._tasks, self._agent, group_size=self._group_size, epoch=epoch)
        trainer.no_more_tasks()

    async def _give(self, trainer: Trainer) -> None:
        async for batch in trainer.feed(groups=1, patience_s=inf):  # how long is too long, `check_health` is told
            (group,) = batch.groups
            samples = await read_group(
                group,
                normalize=self._normalize,
                models=trainer.models,
                tokenizer=self._tokenizer,
                template=self._template,
            )
            if not samples:  # TRL never sees it, so it must not count as trained on: another one is asked for
                await batch.drop("no_samples")
                continue
            for sample in samples:
                await self._buffer(rollout_sample(sample, behind=self._behind))
            self._full.append((self._put, batch))
        self._all_given = True
        await asyncio.Event().wait()  # all was given; `stop` ends it

    async def _look(self, trainer: Trainer) -> None:
        """Notes for `check_health` when anything is new of the run, for ever."""
        seen = None
        while True:
            if (state := trainer.state()) != seen:
                seen, self._at = state, time.monotonic()
            await asyncio.sleep(LOOK_S)

    async def _buffer(self, sample: RolloutSample) -> None:
        while True:
            sample.enqueued_at = time.time()
            try:
                self.rollout_buffer.put_nowait(sample)
                break
            except queue.Full:
                await asyncio.sleep(ROOM_S)
        self._put, self._at = self._put + 1, time.monotonic()

    async def _updated(self, trainer: Trainer, version: int) -> None:
        await self._commit()
        await trainer.policy_updated(version + self._behind)

    async def _commit(self) -> None:
        """Commits the batches of which TRL has taken every sample."""
        taken = self._put - self.rollout_buffer.qsize()
        while self._full and self._full[0][0] <= taken:
            await self._full[0][1].commit()
            self._full.popleft()

    def _wait_for(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._loop is not None
        try:
            asyncio.run_coroutine_threadsafe(work, self._loop).result(ANSWER_S)
        except TimeoutError:
            raise WorkerStalled(f"the log has not taken the new policy version for {ANSWER_S:g} seconds") from None
