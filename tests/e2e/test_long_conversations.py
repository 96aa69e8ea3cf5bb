"""A rollout of many turns, whose requests say only what is new: whoever is asked gets all of it."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bus import LogConfig
from contracts.contexts import read_request
from contracts.rollouts import RolloutResult
from replay import Trajectory
from tests.e2e.workers import Deployment, Instance

TURNS = 12
TASK = {"options": [{"A": "this"}, {"B": "that"}], "expected_answer": "A", "grading_mode": "strict_single_letter_boxed"}


@pytest.mark.parametrize("models", [1, 2])
async def test_the_model_and_the_verifier_are_asked_the_whole_whoever_answers(
    server: str, config: LogConfig, tmp_path: Path, models: int
) -> None:
    """With one model worker a context is in its memory; with two, many calls need the log."""
    said = {"text": "word " * 100, "calls": [{"name": "look", "arguments": {"at": "it"}}]}
    script = {"notes": str(tmp_path / "notes"), "turns": [said] * TURNS + [{"text": r"\boxed{A}"}]}
    instances = {
        "policy": Instance("models", "noting", script),
        "quiz": Instance("resources", "mcqa"),
        "solver": Instance("agents", "simple_agent", {"model": "policy", "resources": "quiz", "max_repeats": 99}),
    }
    async with Deployment(server, config, instances) as deployment:
        await deployment.start("quiz", "solver")
        for number in range(models):
            await deployment.start_one("policy", worker=f"policy-{number}")
        await deployment.ask("r", TASK, agent="solver")
        result = await deployment.end("r")
        assert isinstance(result, RolloutResult)
        assert result.reward == 1.0, "the verifier has read the last item, which its request cites"
        trajectory = Trajectory("r", await deployment.bus.history("r"))
        calls = [call for call in trajectory.calls.values() if call.what == "model"]
        cites = [read_request(trajectory.data(call.requested.event)).cited is not None for call in calls]
        assert (len(cites), any(cites[:2]), all(cites[5:])) == (TURNS + 1, False, True)
        for call in calls:
            read = sum(_length(item) for item in json.loads(trajectory.asked(call))["input"])
            assert call.replied is not None
            usage = msgspec.json.decode(trajectory.data(call.replied.event))["usage"]
            assert usage["input_tokens"] == read // 4, "the model has counted what it was asked"
        assert len(json.loads(bytes(result.response))["output"]) == 3 * TURNS + 1
        await deployment.check(["r"])


def _length(item: dict[str, Any]) -> int:
    content = item.get("content") or ""
    parts = content if isinstance(content, list) else [{"text": content}]
    return sum(len(part["text"]) for part in parts) + len(item.get("arguments", ""))
