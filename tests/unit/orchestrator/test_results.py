"""What stands in a line of the result files."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec

from contracts.events import Event
from contracts.rollouts import RolloutRequest, RolloutResult, RolloutStats, Timings, Usage
from orchestrator.results import outcome

NOW = datetime(2025, 1, 2, tzinfo=UTC)
STATS = RolloutStats(usage=Usage(total_tokens=7), timings=Timings(queue_s=0.0, total_s=1.0), turns=4, tool_calls=2)


def line(task: dict[str, Any], **extra: Any) -> dict[str, Any]:
    """The line of a rollout of this task, whose verifier returned `extra`."""
    request = RolloutRequest(
        task=msgspec.Raw(msgspec.json.encode(task)), agent="solver", run_id="r1", task_index=0, rollout_index=0
    )
    result = RolloutResult(
        response=msgspec.Raw(b"{}"),
        reward=1.0,
        extra={name: msgspec.Raw(msgspec.json.encode(value)) for name, value in extra.items()},
        stats=STATS,
    )
    event = Event(
        id="e", source="jetgym/test/w", type="rollout.completed", subject="s", time=NOW, rolloutid="r1-00000-00"
    )
    found: dict[str, Any] = json.loads(outcome(request, event, result).line)
    return found


def test_what_is_counted_leaves_fields_of_the_task_and_of_the_verifier_as_they_are() -> None:
    plain = line({"responses_create_params": {}})
    assert (plain["turns"], plain["tool_calls"], plain["usage"]["total_tokens"]) == (4, 2, 7)
    own = line({"responses_create_params": {}, "turns": 6, "usage": "none"}, tool_calls=["add"])
    assert (own["turns"], own["usage"], own["tool_calls"]) == (6, "none", ["add"])
    assert (own["rollout_turns"], own["rollout_tool_calls"], own["rollout_usage"]["total_tokens"]) == (4, 2, 7)


def test_what_names_a_rollout_and_how_it_ended_is_always_the_runs() -> None:
    own = line({"responses_create_params": {}, "reward": 0.5, "rollout_id": "mine", "agent": 3})
    assert (own["reward"], own["rollout_id"], own["agent"]) == (1.0, "r1-00000-00", "solver")
