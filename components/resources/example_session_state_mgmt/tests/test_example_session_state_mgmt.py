"""The counter of each rollout is its own, moves with the tools, and is scored where it stands at the end."""

from typing import Any

from components.resources.example_session_state_mgmt.app import CounterResources
from components.resources.trial import Trial


async def test_counting_to_the_goal_earns_1_and_past_it_0(tasks: list[dict[str, Any]]) -> None:
    for task in tasks:
        way = task["expected_count"] - task["initial_count"]
        right = Trial(CounterResources(), task)
        assert await right.call("increment_counter", count=1) == "ok"
        await right.call("increment_counter", count=way - 1)
        assert await right.call("get_counter_value") == str(task["expected_count"])
        assert (await right.verify()).reward == 1.0

        wrong = Trial(CounterResources(), task)
        await wrong.call("increment_counter", count=way)
        await wrong.call("increment_counter", count=1)
        assert (await wrong.verify()).reward == 0.0

        idle = Trial(CounterResources(), task)
        idle.say(f"The counter stands at {task['expected_count']}.")
        assert (await idle.verify()).reward == 0.0


async def test_a_malformed_call_moves_nothing() -> None:
    trial = Trial(CounterResources(), {"expected_count": 2})
    for arguments in ("", "{", "2", '{"count": "2"}', '{"count": 1.5}', '{"count": 2, "by": 1}', '{"session": 2}'):
        assert "increment_counter: " in await trial.call("increment_counter", arguments)
    assert await trial.call("get_counter_value") == "0"
    await trial.call("increment_counter", count=2)
    assert (await trial.verify()).reward == 1.0


async def test_the_session_is_the_same_when_another_worker_rebuilds_it() -> None:
    trial = Trial(CounterResources(), {"initial_count": 1, "expected_count": 6})
    await trial.call("increment_counter", count=2)
    await trial.call("increment_counter", "{")
    await trial.call("increment_counter", count=3)
    await trial.rebuild()
    assert await trial.call("get_counter_value") == "6"
    assert (await trial.verify()).reward == 1.0


async def test_the_tools_of_the_tasks_are_the_components_own(tasks: list[dict[str, Any]]) -> None:
    ours = {entry["name"]: entry["parameters"]["required"] for entry in CounterResources.describe().tools}
    for task in tasks:
        theirs = task["responses_create_params"].get("tools", [])
        assert {entry["name"]: entry["parameters"]["required"] for entry in theirs} in ({}, ours)
