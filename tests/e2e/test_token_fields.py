"""Result lines have the engine's tokens, and are the same lines when they are written anew from the log."""

from typing import Any

import msgspec
import pytest

from bus import LogConfig
from contracts.rollouts import RolloutRequest
from orchestrator.collect import outcomes_in_log
from orchestrator.results import read_outcome
from orchestrator.samples import read_samples
from orchestrator.token_fields import FIELDS
from tests.e2e.test_capture import SCRIPT, TASK, instances
from tests.e2e.workers import RUN, Deployment
from tests.engines.vllm import Vllm

ROLLOUT = "r"


@pytest.mark.parametrize("token_ids", [True, False])
async def test_lines_have_the_engines_tokens_and_are_rebuilt_alike(
    server: str, config: LogConfig, token_ids: bool
) -> None:
    async with (
        Vllm(SCRIPT).serving() as engine,
        Deployment(server, config, instances(engine, token_ids=token_ids)) as deployment,
    ):
        await deployment.start("policy", "quiz", "solver")
        await deployment.ask(ROLLOUT, TASK, agent="solver")
        await deployment.end(ROLLOUT)
        bus = deployment.bus
        events = [each.event for each in await bus.history(ROLLOUT)]
        request = msgspec.json.decode(
            next(e.data for e in events if e.type == "rollout.requested"), type=RolloutRequest
        )
        outcome = await read_outcome(bus, request, next(e for e in events if e.type == "rollout.completed"))
        rebuilt = [each async for each in outcomes_in_log(bus, RUN)]
        assert [each.line for each in rebuilt] == [outcome.line]
        counts = {name: count for name, count in msgspec.json.decode(outcome.line).items() if name.endswith("_calls")}
        assert counts == (
            {"captured_calls": 3, "tokenless_calls": 0, "tool_calls": 2} if token_ids else {"tool_calls": 2}
        )
        output: list[dict[str, Any]] = msgspec.json.decode(outcome.line)["response"]["output"]
        marked = [tuple(item[name] for name in FIELDS) for item in output if FIELDS[0] in item]
        assert marked == (engine.said if token_ids else [])
        samples = await read_samples(bus, ROLLOUT)
        assert samples.trained == (sum(len(generated) for _, generated, _ in engine.said) if token_ids else 0)
        assert len(samples.samples) == (1 if token_ids else 0)
        assert len(samples.tokenless) == (0 if token_ids else len(SCRIPT))
