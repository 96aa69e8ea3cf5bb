"""The adapter that TRL's own loop would run, against a real log."""

import asyncio
import queue
import time
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from bus import LogConfig
from contracts.events import Event
from contracts.rollouts import RolloutRequest
from contracts.tokens import PolicySpan
from orchestrator import Trainer
from orchestrator.adapters.trl import RolloutWorker
from orchestrator.errors import (
    WorkerStalled,
)
from tests.bus.events import until
from tests.bus.speaking import PATIENCE_S, TWO_TURNS, Said, speak
from tests.bus.trainers import deployed, number, tasks
from tests.unit.contracts.conversations import logprob


def taken(worker: RolloutWorker, count: int) -> list[Any]:
    """What TRL takes."""
    return [worker.rollout_buffer.get(timeout=PATIENCE_S) for _ in range(count)]


def buffered(worker: RolloutWorker, count: int) -> None:
    """Waits until so many samples wait for TRL."""
    until = time.monotonic() + PATIENCE_S
    while worker.rollout_buffer.qsize() < count:
        assert time.monotonic() < until
        time.sleep(0.01)


def worker(
    server: str, config: LogConfig, count: int, bounds: Mapping[str, Any] | None = None, **options: Any
) -> RolloutWorker:
    def connect() -> Any:
        return Trainer.connect(server, run="grpo", namespace=config.namespace, **(bounds or {}))

    return RolloutWorker(connect, tasks(count), group_size=2, **options)


async def test_trl_gets_samples_through_its_workers_protocol(server: str, config: LogConfig) -> None:
    async with deployed(server, config) as agents:
        speak(agents, lambda _: TWO_TURNS)
        found = worker(server, config, 3)
        await asyncio.to_thread(found.update_model_version, 3)  # TRL sends its first weights before it starts
        await asyncio.to_thread(found.start)
        try:
            found.check_health(60.0)
            samples = await asyncio.to_thread(taken, found, 6)
            with pytest.raises(queue.Empty):
                found.rollout_buffer.get_nowait()
            assert all(sample.input_ids.tolist() == [1, 2, 3, 4, 5, 6] for sample in samples)
            assert all(sample.completion_mask.tolist() == [0, 0, 1, 0, 1, 1] for sample in samples)
            assert samples[0].old_log_probs.tolist() == [0, 0, logprob(3), 0, logprob(5), logprob(6)]
            assert all(sample.enqueued_at <= time.time() for sample in samples)
            assert [round(sample.advantage, 3) for sample in samples] == [-1, 1] * 3
            assert len({sample.group_id for sample in samples}) == 3
            assert {sample.model_version for sample in samples} == {3}
            assert {sample.metrics["reward"] for sample in samples} == {0.0, 1.0}
            await asyncio.to_thread(found.update_model_version, 4)
            with pytest.raises(WorkerStalled, match="the run for 0 seconds: there are no more tasks"):
                found.check_health(0.0)
        finally:
            await asyncio.to_thread(found.stop)
        with pytest.raises(WorkerStalled, match="does not run"):
            found.check_health(60.0)


async def test_what_trl_had_not_taken_comes_again_and_what_it_was_trained_on_does_not(
    server: str, config: LogConfig
) -> None:
    async with deployed(server, config) as agents:
        speak(agents, lambda _: TWO_TURNS)
        first = worker(server, config, 3, buffered=2)
        await asyncio.to_thread(first.start)
        before = await asyncio.to_thread(taken, first, 3)
        await asyncio.to_thread(first.stop)
        second = worker(server, config, 3)
        await asyncio.to_thread(second.start)
        after = await asyncio.to_thread(taken, second, 4)
        await asyncio.to_thread(second.stop)
        trained_on = {sample.group_id for sample in before[:2]}
        assert len(trained_on) == 1
        assert {sample.group_id for sample in after}.isdisjoint(trained_on)
        assert before[2].group_id in {sample.group_id for sample in after}, "a group that was taken in part"


async def test_trl_gets_all_tasks_again_for_as_many_epochs_as_it_wants(server: str, config: LogConfig) -> None:
    async with deployed(server, config) as agents:
        speak(agents, lambda _: TWO_TURNS)
        bounds = {"groups": 1, "max_lag": 3}
        found = worker(server, config, 2, bounds, epochs=None)
        await asyncio.to_thread(found.start)
        try:
            groups = [sample.group_id for sample in await asyncio.to_thread(taken, found, 8)]
            assert len(set(groups)) == 4
            await asyncio.to_thread(found.update_model_version, 1)
            assert {s.group_id for s in await asyncio.to_thread(taken, found, 2)}.isdisjoint(groups)
        finally:
            await asyncio.to_thread(found.stop)
        ended: list[dict[str, Any]] = []
        for once in (iter(tasks(2)), ended):
            with pytest.raises(ValueError, match="several epochs take tasks that can be gone through again"):
                RolloutWorker(lambda: Trainer.connect(server, run="grpo"), once, epochs=2)
        with pytest.raises(ValueError, match="epochs is a whole number, 1 or more, not 0"):
            RolloutWorker(lambda: Trainer.connect(server, run="grpo"), tasks(2), epochs=0)


async def test_trl_that_counts_from_0_again_goes_on_where_the_log_is(server: str, config: LogConfig) -> None:
    """In each process, as TRL does it; its samples are of versions as it counts, those of earlier weights too."""
    generates = 0

    def now(_: RolloutRequest) -> Said:
        span = (PolicySpan(version=generates, count=1),)
        return [(name, msgspec.structs.replace(capture, spans=span)) for name, capture in TWO_TURNS[:1]]

    async with deployed(server, config) as agents:
        speak(agents, now)
        for begins, stands_at in ((None, 2), (1, 5), (None, 8), (20, 22)):
            found = worker(server, config, 30, {"groups": 1, "max_lag": 2, "unfinished": 2})
            if begins is not None:
                await asyncio.to_thread(found.update_model_version, begins)
            generates = stands_at - 2
            await asyncio.to_thread(found.start)
            try:
                assert found._trainer is not None
                assert found._trainer.version == generates
                for more in range(3):
                    counted = (begins or 0) + more
                    if more:
                        generates += 1
                        await asyncio.to_thread(found.update_model_version, counted)
                    samples = await asyncio.to_thread(taken, found, 4)
                    assert all(counted - 4 <= sample.model_version <= counted for sample in samples)
                assert found._trainer.version == stands_at == generates
            finally:
                await asyncio.to_thread(found.stop)


async def test_trls_worker_starts_once_more_with_what_was_not_trained_on(server: str, config: LogConfig) -> None:
    async with deployed(server, config) as agents:
        speak(agents, lambda _: TWO_TURNS)
        found = worker(server, config, 3)
        trained_on: set[int] = set()
        for left in (3, 2):
            await asyncio.to_thread(found.start)
            first, *_ = await asyncio.to_thread(taken, found, 2)
            await asyncio.to_thread(buffered, found, 2 * (left - 1))
            assert first.group_id not in trained_on
            trained_on.add(first.group_id)
            await asyncio.to_thread(found.stop)
        assert len(trained_on) == 2


async def test_trl_is_told_when_the_worker_dies(server: str, config: LogConfig) -> None:
    async with deployed(server, config) as agents:
        speak(agents, lambda _: TWO_TURNS)
        found = worker(server, config, 3, tokenizer="another")
        await asyncio.to_thread(found.start)
        assert found._thread is not None
        await asyncio.to_thread(found._thread.join, PATIENCE_S)
        with pytest.raises(WorkerStalled, match=r"died: rollout grpo-.* has the tokenizer tok recorded"):
            found.check_health(60.0)
        unknown = RolloutWorker(lambda: Trainer.connect("nats://127.0.0.1:1", run="grpo"), tasks(1))
        with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
            await asyncio.to_thread(unknown.start)


async def test_trl_gets_other_groups_in_the_place_of_those_with_nothing_to_train_on(
    server: str, config: LogConfig
) -> None:
    """T16: what failed whole, and what has no token, holds no place of what may be asked for at a version."""
    async with deployed(server, config) as agents:
        speak(agents, lambda request: TWO_TURNS if number(request) == 3 else [])
        completes = agents.behave

        async def behave(event: Event, request: RolloutRequest) -> None:
            await (agents.fail(event) if number(request) == 1 else completes(event, request))

        agents.behave = behave
        found = worker(server, config, 4, {"groups": 1, "max_lag": 0})
        await asyncio.to_thread(found.start)
        try:
            samples = await asyncio.to_thread(taken, found, 2)
            assert [sample.metrics["reward"] for sample in samples] == [0.0, 1.0]
            assert found._trainer is not None
            assert found._trainer.state().dropped == {"no_samples": 6}
        finally:
            await asyncio.to_thread(found.stop)


async def test_trl_may_rest_for_longer_than_a_feed_is_patient(
    server: str, config: LogConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it evaluates, say, and all that may be asked for at its version is in its buffer."""
    feed = Trainer.feed
    monkeypatch.setattr(Trainer, "feed", lambda trainer, **given: feed(trainer, **{"patience_s": 0.2, **given}))
    async with deployed(server, config) as agents:
        speak(agents, lambda _: TWO_TURNS)
        found = worker(server, config, 2, {"groups": 1, "max_lag": 0})
        await asyncio.to_thread(found.start)
        try:
            await asyncio.to_thread(taken, found, 2)
            await asyncio.sleep(0.5)
            with pytest.raises(WorkerStalled, match="have not ended: 0, groups that were given and not trained on: 1"):
                found.check_health(0.0)
            await asyncio.to_thread(found.update_model_version, 1)
            assert len(await asyncio.to_thread(taken, found, 2)) == 2
        finally:
            await asyncio.to_thread(found.stop)


async def test_trl_waits_as_long_as_anything_is_new_of_the_run(
    server: str, config: LogConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has trained for long, and the rollouts that its next weights allow for take their time."""
    monkeypatch.setattr("orchestrator.adapters.trl.LOOK_S", 0.01)
    async with deployed(server, config) as agents:
        speak(agents, lambda _: TWO_TURNS)
        found = worker(server, config, 2, {"groups": 1, "max_lag": 0})

        def stalled() -> bool:
            try:
                found.check_health(0.3)
            except WorkerStalled:
                return True
            return False

        await asyncio.to_thread(found.start)
        try:
            await asyncio.to_thread(taken, found, 2)
            go, speaks = asyncio.Event(), agents.behave

            async def late(event: Event, request: RolloutRequest) -> None:
                await go.wait()
                await speaks(event, request)

            agents.behave = late
            await until(stalled)
            await asyncio.to_thread(found.update_model_version, 1)
            await until(lambda: not stalled())
            await until(stalled)
            go.set()
            assert len(await asyncio.to_thread(taken, found, 2)) == 2
        finally:
            await asyncio.to_thread(found.stop)
