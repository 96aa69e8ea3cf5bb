"""The smoke test of one call: the tool answers and everyone passes."""

from typing import Any

from components.resources.example_single_tool_call.app import WeatherResources
from components.resources.trial import Trial


async def test_a_call_is_answered_and_every_rollout_passes(tasks: list[dict[str, Any]]) -> None:
    for task in tasks:
        trial = Trial(WeatherResources(), task)
        assert await trial.call("get_weather", city="Lisbon") == "It is cold and clear in Lisbon."
        trial.say("Cold, but clear.")
        assert (await trial.verify()).reward == 1.0


async def test_a_malformed_call_is_told_and_the_rollout_passes_too() -> None:
    trial = Trial(WeatherResources(), {})
    assert "`city` is missing" in await trial.call("get_weather", town="Lisbon")
    assert "there is no tool" in await trial.call("get_wether", city="Lisbon")
    assert (await trial.verify()).reward == 1.0


async def test_the_tools_of_the_tasks_are_the_components_own(tasks: list[dict[str, Any]]) -> None:
    (ours,) = WeatherResources.describe().tools
    for task in tasks:
        for theirs in task["responses_create_params"].get("tools", []):
            assert theirs["name"] == ours["name"]
            assert theirs["parameters"]["properties"].keys() == ours["parameters"]["properties"].keys()
