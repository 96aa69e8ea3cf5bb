"""Values are looked up step by step, and the list that is handed in last is scored."""

from typing import Any

import msgspec
import pytest

from components.resources.example_multi_step.app import SynonymResources
from components.resources.trial import Trial

TASK = {"expected_synonym_values": [711, 407]}


async def test_the_values_of_all_tasks_are_what_the_tool_says_and_earn_1(tasks: list[dict[str, Any]]) -> None:
    for task in tasks:
        trial = Trial(SynonymResources(), task)
        values = []
        for synonym in task["expected_synonyms"]:
            output = await trial.call("get_synonym_value", synonym=synonym)
            values.append(msgspec.json.decode(output)["synonym_value"])
        assert await trial.call("extract_synonym_values", synonym_values=values) == '{"success":true}'
        assert (await trial.verify()).reward == 1.0


async def test_other_values_for_all_tasks_earn_0(tasks: list[dict[str, Any]]) -> None:
    for task in tasks:
        right = task["expected_synonym_values"]
        for wrong in ([], right[:-1], [*right, 1], [value + 1 for value in right]):
            trial = Trial(SynonymResources(), task)
            await trial.call("extract_synonym_values", synonym_values=wrong)
            assert (await trial.verify()).reward == 0.0


@pytest.mark.parametrize(
    ("calls", "reward"),
    [
        ([], 0.0),
        (['{"synonym_values": [407, 711]}'], 0.0),
        (['{"synonym_values": [1]}', '{"synonym_values": [711, 407]}'], 1.0),
        (['{"synonym_values": [711, 407]}', '{"synonym_values": [1]}'], 0.0),
        (['{"synonym_values": [711, 407]}', "{"], 0.0),
        (["[711, 407]"], 0.0),
        (['{"values": [711, 407]}'], 0.0),
        (['{"synonym_values": ["711", "407"]}'], 0.0),
    ],
)
async def test_the_last_list_counts_and_its_order_does(calls: list[str], reward: float) -> None:
    trial = Trial(SynonymResources(), TASK)
    await trial.call("get_synonym_value", synonym="Blazing")
    for arguments in calls:
        await trial.call("extract_synonym_values", arguments)
    trial.say("[711, 407]")
    assert (await trial.verify()).reward == reward


async def test_the_tools_of_the_tasks_are_the_components_own(tasks: list[dict[str, Any]]) -> None:
    ours = {entry["name"]: entry["parameters"]["properties"].keys() for entry in SynonymResources.describe().tools}
    for task in tasks:
        theirs = task["responses_create_params"].get("tools", [])
        assert {entry["name"]: entry["parameters"]["properties"].keys() for entry in theirs} in ({}, ours)
