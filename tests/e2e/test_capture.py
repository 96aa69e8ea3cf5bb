"""The tokens of model calls, from an engine that speaks vLLM's fields into the log: what it said, and nothing else."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from bus import Bus, LogConfig
from contracts.events import Event
from contracts.rollouts import PolicyUpdated, RolloutResult
from contracts.tokens import Capture, read_capture, unpack_ids, unpack_logprobs
from tests.e2e.workers import Deployment, Instance
from tests.engines.tokenizer import written_call
from tests.engines.vllm import Vllm

TASK = {"options": [{"A": "this"}, {"B": "that"}], "expected_answer": "A", "grading_mode": "strict_single_letter_boxed"}
LOOKS = written_call("look", '{"at": "it"}'), written_call("look", '{"at":  "that"}')
SCRIPT = (f"I look. {LOOKS[0]}", LOOKS[1], r"\boxed{A}")


@dataclass(frozen=True)
class Call:
    """A model call as the log has it."""

    event: Event
    capture: Capture
    prompt: list[int]
    generated: list[int]
    logprobs: list[float]


async def calls_of(bus: Bus, rollout: str) -> list[Call]:
    """The answered model calls of a rollout in the log's order, with the whole of their tokens."""
    calls: dict[str, Call] = {}
    for event in (entry.event for entry in await bus.history(rollout)):
        if event.type == "model.replied":
            raw = await bus.fetch_capture(event)
            capture = Capture() if raw == b"null" else read_capture(raw)
            before: list[int] = []
            if capture.cited is not None:
                cited = calls[capture.cited.call]
                before = (cited.prompt + cited.generated)[: capture.cited.count]
            calls[event.callkey] = Call(
                event,
                capture,
                before + list(unpack_ids(capture.prompt)),
                list(unpack_ids(capture.generated)),
                list(unpack_logprobs(capture.logprobs)),
            )
    return list(calls.values())


def instances(engine: Vllm, **config: Any) -> dict[str, Instance]:
    model = {"base_url": engine.url, "token_ids": True, "http": {"tries": 1}, **config}
    return {
        "policy": Instance("models", "chat_model", model),
        "quiz": Instance("resources", "mcqa"),
        "solver": Instance("agents", "simple_agent", {"model": "policy", "resources": "quiz", "max_repeats": 99}),
    }


async def run(deployment: Deployment, rollout: str = "r", task: Mapping[str, Any] = TASK) -> list[Call]:
    """The model calls of one rollout that completes."""
    await deployment.ask(rollout, task, agent="solver")
    result = await deployment.end(rollout)
    assert isinstance(result, RolloutResult), result
    await deployment.check([rollout])
    return await calls_of(deployment.bus, rollout)


def is_continued(calls: list[Call]) -> list[bool]:
    """Whether each prompt begins with the prompt and generated tokens of the call before (T1)."""
    pairs = itertools.pairwise(calls)
    return [
        after.prompt[: len(before.prompt + before.generated)] == before.prompt + before.generated
        for before, after in pairs
    ]


async def announce(bus: Bus, version: int) -> None:
    data = msgspec.json.encode(PolicyUpdated(instance="policy", version=version))
    await bus.publish(bus.event("policy.updated", bus.subjects.policy("policy", version), data))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
async def test_the_log_has_the_engines_tokens_bit_for_bit_and_each_prompt_once(
    server: str, config: LogConfig, workers: int, stream: bool
) -> None:
    """T1, T3, T7, T9: with two workers, a worker reads from the log what the other one captured."""
    async with (
        Vllm(SCRIPT).serving() as engine,
        Deployment(server, config, instances(engine, stream=stream)) as deployment,
    ):
        await deployment.start("quiz", "solver")
        for number in range(workers):
            await deployment.start_one("policy", worker=f"policy-{number}")
        calls = await run(deployment)
        assert len(calls) == len(SCRIPT)
        assert [(call.prompt, call.generated, call.logprobs) for call in calls] == engine.said
        assert all(len(call.generated) == len(call.logprobs) for call in calls)
        assert is_continued(calls) == [True, True]
        stored = sum(len(call.capture.prompt) + len(call.capture.generated) for call in calls)
        assert stored == 4 * len(calls[-1].prompt + calls[-1].generated), "what was said is said once"
        assert [call.capture.cited and call.capture.cited.call for call in calls] == [None, "m_1", "m_2"]
