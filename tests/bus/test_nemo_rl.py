"""The adapter that NeMo RL's own loop would run, against a real log."""

import asyncio
import math
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from bus import LogConfig
from contracts.events import Event
from contracts.rollouts import RolloutRequest
from orchestrator import Trainer
from orchestrator.adapters.nemo_rl import RolloutStream
from orchestrator.errors import (
    AdapterError,
    FeedStarved,
    InputError,
    NotContiguous,
    NoTrajectory,
    UsageError,
)
from orchestrator.token_fields import FIELDS
from tests.bus.speaking import PATIENCE_S, TWO_TURNS, Said, speak
from tests.bus.trainers import deployed
from tests.unit.contracts.conversations import capture, logprob

BROKEN: Said = [("a0", capture([1, 2], [3])), ("a1", capture([9, 9, 9, 9], [5, 6]))]


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
