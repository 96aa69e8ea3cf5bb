"""The two adapters that run a trainer: what TRL's and NeMo RL's own loops would do, against a real log."""

import asyncio
import math
import queue
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from bus import Bus, LogConfig
from contracts.events import Event
from contracts.rollouts import RolloutRequest, RolloutResult, RolloutStats, Timings, Usage
from contracts.tokens import Capture, PolicySpan
from orchestrator import Trainer
from orchestrator.adapters.nemo_rl import RolloutStream
from orchestrator.adapters.trl import RolloutWorker
from orchestrator.errors import (
    AdapterError,
    FeedStarved,
    InputError,
    NotContiguous,
    NoTrajectory,
    UsageError,
    WorkerStalled,
)
from orchestrator.token_fields import FIELDS
from tests.bus.events import until
from tests.bus.trainers import Agents, deployed, number, tasks
from tests.unit.contracts.conversations import capture, logprob

PATIENCE_S = 30.0
Said = list[tuple[str, Capture]]
"""The model calls of a rollout: the ID of the item put out, and the capture."""
TWO_TURNS: Said = [("a0", capture([1, 2], [3])), ("a1", capture([4], [5, 6], cited=("m_0", 3)))]
BROKEN: Said = [("a0", capture([1, 2], [3])), ("a1", capture([9, 9, 9, 9], [5, 6]))]


def speak(agents: Agents, said: Callable[[RolloutRequest], Said], *, flawed: int = 0) -> None:
    """From now on each rollout makes model calls that have captures, and completes with the reward of its index.

    So many more of its calls had tokens that were refused.
    """

    async def behave(event: Event, request: RolloutRequest) -> None:
        calls = said(request)
        for place in range(len(calls)):
            await model_call(agents.bus, event.rolloutid, f"m_{place}", calls, place)
        response = {"id": "r", "object": "response", "created_at": 0, "model": "m", "status": "completed"}
        result = RolloutResult(
            response=msgspec.Raw(msgspec.json.encode({**response, "output": [item(name) for name, _ in calls]})),
            reward=float(request.rollout_index),
            stats=RolloutStats(
                usage=Usage(output_tokens=3),
                timings=Timings(queue_s=0.0, total_s=0.0),
                captured=len(calls),
                flawed=flawed,
            ),
        )
        await agents.end(event, "completed", msgspec.json.encode(result))

    agents.behave = behave


def item(name: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "id": name, "status": "completed", "content": []}


async def model_call(bus: Bus, rollout: str, key: str, said: Said, number: int) -> None:
    items = [item(name) for name, _ in said]
    requested = bus.event(
        "model.requested",
        bus.subjects.request("models", "policy", 1, rollout, key),
        msgspec.json.encode({"request": {"input": ["q", *items[:number]]}}),
        rolloutid=rollout,
        callkey=key,
        replyto=bus.subjects.reply("agent", rollout, key),
    )
    await bus.publish(requested)
    replied = bus.event(
        "model.replied",
        requested.replyto,
        msgspec.json.encode({"output": [items[number]]}),
        rolloutid=rollout,
        callkey=key,
        capture=msgspec.Raw(msgspec.json.encode(said[number][1])),
    )
    await bus.publish(replied)


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


def rows(count: int, **fields: Any) -> list[dict[str, Any]]:
    """As NeMo RL sends them: the rows of a group are alike but for their index."""
    row = {"responses_create_params": {"input": "go"}, "agent_ref": {"name": "solver"}, **fields}
    return [{**row, "_rowidx": number} for number in range(count)]


def postprocessed(result: dict[str, Any]) -> tuple[list[int], list[float]]:
    """What NeMo RL does with a result: joins the turns, asserts that they go on from each other, refuses NaN."""
    seen: list[int] = []
    logprobs: list[float] = []
    for each in result["response"]["output"]:
        if "generation_token_ids" not in each:
            continue
        assert seen == each["prompt_token_ids"][: len(seen)]
        seen = each["prompt_token_ids"] + each["generation_token_ids"]
        logprobs += each["generation_log_probs"]
    assert seen
    assert not any(map(math.isnan, logprobs))
    return seen, logprobs


async def test_nemo_rl_gets_rows_in_finish_order_with_tokens_that_go_on(server: str, config: LogConfig) -> None:
    """nemo_rl/environments/nemo_gym.py, run_rollouts and _postprocess_nemo_gym_to_nemo_rl_result (main, mid-2026)."""
    go = [asyncio.Event() for _ in range(3)]
    async with (
        deployed(server, config) as agents,
        Trainer.connect(server, run="grpo", namespace=config.namespace) as trainer,
    ):
        speak(agents, lambda _: TWO_TURNS)
        at_once = agents.behave

        async def behave(event: Event, request: RolloutRequest) -> None:
            await go[msgspec.json.decode(request.task)["_rowidx"]].wait()
            await at_once(event, request)

        agents.behave = behave
        stream, examples = RolloutStream(trainer), rows(3)
        results = stream.run_examples(examples, head_server_config=object())
        async with asyncio.timeout(PATIENCE_S):
            for expected in (2, 0, 1):
                go[expected].set()
                row, result = await next(results)
                assert row is examples[expected]
                assert (row["_rowidx"], result["_rowidx"], result["reward"]) == (expected, expected, 0.0)
                tokens, logprobs = postprocessed(result)
                assert tokens == [1, 2, 3, 4, 5, 6]
                assert logprobs == [logprob(3), logprob(5), logprob(6)]
                assert not any(name.startswith("_jetgym") for name in result)
            with pytest.raises(StopIteration):
                next(results)
            again = [await each for each in stream.run_examples(examples)]  # the next step asks for the same rows
        assert sorted(row["_rowidx"] for row, _ in again) == [0, 1, 2]
        assert len({result["rollout_id"] for _, result in again}) == 3
        assert len(agents.requests) == 6
        await stream.close()


@pytest.mark.parametrize("on_break", ["raise", "mask"])
async def test_nemo_rl_is_never_given_tokens_that_do_not_go_on(server: str, config: LogConfig, on_break: Any) -> None:
    async with (
        deployed(server, config) as agents,
        Trainer.connect(server, run="grpo", namespace=config.namespace) as trainer,
    ):
        speak(agents, lambda _: BROKEN)
        stream = RolloutStream(trainer, on_break=on_break)
        (waiting,) = stream.run_examples(rows(1))
        async with asyncio.timeout(PATIENCE_S):
            if on_break == "raise":
                with pytest.raises(NotContiguous, match=r"rollout grpo-\S+ \(_rowidx 0\): .* output item 1"):
                    await waiting
            else:
                _, result = await waiting
                assert result["mask_sample"] is True
                assert postprocessed(result) == ([1, 2, 3], [logprob(3)])
                assert [name for name in FIELDS if name in result["response"]["output"][1]] == []
                assert stream.masked == {"not_contiguous": 1}
        await stream.close()


@pytest.mark.parametrize("flawed", [0, 1])
async def test_nemo_rl_hears_of_rollouts_that_failed_and_goes_on(server: str, config: LogConfig, flawed: int) -> None:
    """T16: also of one whose tokens were all refused, and of what nobody can read."""
    async with (
        deployed(server, config) as agents,
        Trainer.connect(server, run="grpo", namespace=config.namespace) as trainer,
    ):
        speak(agents, lambda _: [], flawed=flawed)
        at_once = agents.behave

        async def behave(event: Event, request: RolloutRequest) -> None:
            place = msgspec.json.decode(request.task)["_rowidx"]
            if place == 0:
                await agents.fail(event)
            elif place == 1:
                await at_once(event, request)
            else:
                odd = {"reward": None} if place == 2 else {"reward": 1.0, "response": [1]}
                await agents.end(event, "completed", msgspec.json.encode(odd))

        agents.behave = behave
        stream = RolloutStream(trainer)
        told = []
        async with asyncio.timeout(PATIENCE_S):
            for waiting in stream.run_examples(rows(4)):
                with pytest.raises(NoTrajectory) as found:
                    await waiting
                told.append(str(found.value))
        reasons = "failed: agent_error", "has tokens", "its end cannot be read", "has no list of output items"
        for place, words in enumerate(reasons):
            assert sum(words in text and f" (_rowidx {place})" in text for text in told) == 1, told
        await stream.close()


async def test_nemo_rl_hears_that_what_it_asks_for_cannot_be_asked(server: str, config: LogConfig) -> None:
    """And that a trainer that drops what is too stale leaves rollouts that are waited for unanswered."""
    async with (
        deployed(server, config),
        Trainer.connect(server, run="bounded", namespace=config.namespace, max_lag=4) as bounded,
        Trainer.connect(server, run="grpo", namespace=config.namespace) as trainer,
    ):
        with pytest.raises(UsageError, match="open its trainer without max_lag"):
            RolloutStream(bounded)
        stream = RolloutStream(trainer)
        waiting = list(stream.run_examples(rows(2, agent_ref={"name": "nobody"})))
        async with asyncio.timeout(PATIENCE_S):
            told = await asyncio.gather(*waiting, return_exceptions=True)
        assert ["name one of the agents" in str(error) for error in told] == [True, True]
        with suppress(asyncio.CancelledError):
            await stream.close()


async def test_nemo_rl_gets_its_good_rows_beside_a_bad_one_and_after_a_long_rest(
    server: str, config: LogConfig
) -> None:
    async with (
        deployed(server, config) as agents,
        Trainer.connect(server, run="grpo", namespace=config.namespace) as trainer,
    ):
        speak(agents, lambda _: TWO_TURNS)
        stream = RolloutStream(trainer, patience_s=0.2)
        good = list(stream.run_examples(rows(1)))
        wrong: list[tuple[Any, str]] = [
            ({"responses_create_params": 5}, "row 0: responses_create_params"),
            ("go", "row 0: is no object, but str"),
            ({**rows(1)[0], "agent_ref": "solver"}, 'row 0: agent_ref: is no object with the "name" of an agent'),
            ({**rows(1)[0], "image": object()}, "row 0: is no JSON"),
        ]
        for row, told in wrong:
            (bad,) = stream.run_examples([row])
            async with asyncio.timeout(PATIENCE_S):
                with pytest.raises(InputError, match=told):
                    await bad
        async with asyncio.timeout(PATIENCE_S):
            assert len(await asyncio.gather(*good)) == 1
            await asyncio.sleep(0.5)  # more than the patience of the feed
            assert len(await asyncio.gather(*stream.run_examples(rows(2)))) == 2
        await stream.close()


async def test_nemo_rl_may_ask_for_nothing_and_train_for_almost_as_long_as_it_is_patient(
    server: str, config: LogConfig
) -> None:
    """A rollout has all of the patience from when it is awaited."""
    async with (
        deployed(server, config) as agents,
        Trainer.connect(server, run="grpo", namespace=config.namespace) as trainer,
        asyncio.timeout(PATIENCE_S),
    ):
        speak(agents, lambda _: TWO_TURNS)
        stream = RolloutStream(trainer, patience_s=2.0)
        assert len(await asyncio.gather(*stream.run_examples(rows(1)))) == 1
        assert list(stream.run_examples([])) == []
        await asyncio.sleep(1.5)
        speaks, go = agents.behave, asyncio.Event()

        async def late(event: Event, request: RolloutRequest) -> None:
            await go.wait()
            await speaks(event, request)

        agents.behave = late
        asyncio.get_running_loop().call_later(1.0, go.set)
        assert len(await asyncio.gather(*stream.run_examples(rows(2)))) == 2
        await stream.close()


async def test_nemo_rl_is_told_where_nothing_ends_for_too_long_and_where_the_stream_was_closed(
    server: str, config: LogConfig
) -> None:
    """Nobody awaits for ever what will not come."""

    async def unending(event: Event, request: RolloutRequest) -> None: ...

    async with (
        deployed(server, config) as agents,
        Trainer.connect(server, run="grpo", namespace=config.namespace) as trainer,
        asyncio.timeout(PATIENCE_S),
    ):
        agents.behave = unending
        short = RolloutStream(trainer, patience_s=0.2)
        for each in short.run_examples(rows(2)):
            with pytest.raises(FeedStarved, match="no batch of 1 rollouts: nothing that it lacks has come for"):
                await each
        await short.close()
        stream = RolloutStream(trainer, patience_s=math.inf)
        waiting = [asyncio.ensure_future(each) for each in stream.run_examples(rows(2))]
        while trainer.state().unfinished_rollouts < 4:
            await asyncio.wait(waiting, timeout=0.01)
        await stream.close()
        for each in waiting:
            with pytest.raises(AdapterError, match="the stream of rollouts was closed"):
                await each
        with pytest.raises(AdapterError, match="the stream of rollouts was closed"):
            stream.run_examples(rows(1))
