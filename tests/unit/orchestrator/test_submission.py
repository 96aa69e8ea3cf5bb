"""What a trainer asks for: a task is one group, whatever it is handed over as; what is no task is refused."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from contracts.deployments import Description, Reference
from contracts.tasks import Task
from orchestrator.errors import InputError, UsageError
from orchestrator.feed import PATIENCE_S, FeedOptions
from orchestrator.submission import AnyTask, Submission, new_group

TASK = {"responses_create_params": {"input": "hi"}, "answer": 5}
TOOL = {"type": "function", "name": "look", "parameters": {}}
DESCRIPTIONS = {
    "solver": Description(
        kind="agents",
        implementation="simple_agent",
        references=(Reference(path="resources", kind="resources", name="quiz"),),
    ),
    "quiz": Description(kind="resources", implementation="mcqa", tools=(TOOL,)),
    "policy": Description(kind="models", implementation="scripted_model"),
}


def submission() -> Submission:
    return Submission("run", DESCRIPTIONS)


def line(**changes: Any) -> bytes:
    return json.dumps({**TASK, **changes}).encode()


@pytest.mark.parametrize(
    "task", [TASK, dict(reversed(TASK.items())), line(), line().decode(), Task(line()), json.dumps(TASK, indent=2)]
)
def test_a_task_has_one_group_in_an_epoch_for_an_agent(task: AnyTask) -> None:
    """F9: as fields or as a line, whatever the order of its keys."""
    made = submission()
    group, index, _ = made.group_of(TASK, "solver", 0)
    assert made.group_of(task, "solver", 0)[:2] == (group, index)
    assert submission().group_of(task, "solver", 0)[0] == group
    others = {made.group_of(task, "solver", 1)[0], made.group_of(task, "other", 0)[0]}
    others.add(made.group_of(line(answer=6), "solver", 0)[0])
    assert len({group, *others}) == 4


def test_tasks_are_numbered_as_they_come_and_keep_their_number() -> None:
    made = submission()
    numbers = [made.group_of(line(answer=answer), "solver", epoch)[1] for epoch in (0, 1) for answer in (3, 4, 3)]
    assert numbers == [0, 1, 0, 0, 1, 0]


def test_a_request_says_group_size_and_version_and_offers_the_tools_of_the_agents_resources() -> None:
    made = submission()
    name, index, raw = made.group_of(TASK, "solver", 0)
    asked = datetime.now(UTC)
    group = new_group(name, agent="solver", task_index=index, epoch=0, version=7, asked=asked, size=4)
    request = made.request(group, raw, 4)
    assert (request.group, request.group_size, request.policy_version, request.run_id) == (name, 4, 7, "run")
    assert request.sessionless == ("quiz",)
    assert msgspec.json.decode(request.task)["responses_create_params"]["tools"] == [TOOL]


@pytest.mark.parametrize(
    ("task", "told"),
    [
        ("nonsense", "task 0: is no JSON"),
        ({"answer": 5}, "task 0: responses_create_params: is missing"),
        ({"responses_create_params": {"input": 5}}, "task 0: responses_create_params.input"),
    ],
)
def test_what_is_no_task_is_refused_by_its_number(task: AnyTask, told: str) -> None:
    with pytest.raises(InputError, match=told):
        ask(task)


def ask(task: AnyTask) -> None:
    made = submission()
    name, index, raw = made.group_of(task, "solver", 0)
    made.request(
        new_group(name, agent="solver", task_index=index, epoch=0, version=0, asked=datetime.now(UTC), size=1), raw, 1
    )


def test_the_agent_may_be_left_out_where_there_is_one() -> None:
    assert submission().agent(None) == "solver"
    with pytest.raises(UsageError, match="name one of the agents: did you mean 'solver'"):
        submission().agent("solvr")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "say how large a batch is"),
        ({"groups": 2, "tokens": 5}, "say how large a batch is"),
        ({"groups": 0}, "at least 1"),
        ({"rollouts": 2, "drop_zero_variance": True}, "compares the rollouts of a group"),
        ({"groups": 2, "max_lag": -1}, "0 or more"),
    ],
)
def test_options_of_a_feed_that_contradict_each_other_are_refused(options: dict[str, Any], told: str) -> None:
    rest: dict[str, Any] = {
        "groups": None,
        "rollouts": None,
        "tokens": None,
        "order": "finish",
        "max_lag": None,
        "drop_zero_variance": False,
        "straggler_s": None,
        "patience_s": PATIENCE_S,
    }
    with pytest.raises(ValueError, match=told):
        FeedOptions(**{**rest, **options})
