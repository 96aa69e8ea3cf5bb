"""What a trainer asks for: a task is one group, whatever it is handed over as; what is no task is refused."""

import json
import math
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.deployments import Description, Reference
from contracts.tasks import Task
from orchestrator.errors import InputError, UsageError
from orchestrator.groups import OpenGroup
from orchestrator.submission import AnyTask, Asked, Submission, new_group
from orchestrator.trainer_options import PATIENCE_S, FeedOptions

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


def lines(answer: int) -> bytes:
    return line(answer=answer)


def line(**changes: Any) -> bytes:
    return json.dumps({**TASK, **changes}).encode()


@pytest.mark.parametrize(
    "task", [TASK, dict(reversed(TASK.items())), line(), line().decode(), Task(line()), json.dumps(TASK, indent=2)]
)
def test_a_task_has_one_group_in_an_epoch_for_an_agent(task: AnyTask) -> None:
    """F9: as fields or as a line, whatever the order of its keys."""
    first, again = submission().asked([TASK, task], "solver", 0)
    assert first.group == again.group
    others = [next(submission().asked([task], agent, epoch)).group for agent, epoch in [("solver", 1), ("other", 0)]]
    others.append(next(submission().asked([line(answer=6)], "solver", 0)).group)
    assert len({first.group, *others}) == 4


@given(st.permutations(range(8)), st.integers(1, 8), st.integers(0, 9))
def test_a_tasks_number_is_its_own_whatever_was_submitted_before_it(order: list[int], count: int, epoch: int) -> None:
    """As where a trainer starts again with other tasks: no two of them have one number, and each keeps its own."""
    numbers = {n: asked.task_index for n, asked in enumerate(submission().asked(map(lines, range(8)), "solver", 0))}
    assert len(set(numbers.values())) == 8
    some = order[:count]
    assert [asked.task_index for asked in submission().asked(map(lines, some), "solver", epoch)] == [
        numbers[n] for n in some
    ]
    assert all(0 <= number < 2**53 for number in numbers.values())


def test_a_request_says_group_size_and_version_and_offers_the_tools_of_the_agents_resources() -> None:
    made = submission()
    (asked,) = made.asked([TASK], "solver", 0)
    request = made.request(group(asked, version=7, size=4), asked)
    assert (request.group, request.group_size, request.policy_version, request.run_id) == (asked.group, 4, 7, "run")
    assert request.sessionless == ("quiz",)
    assert msgspec.json.decode(request.task)["responses_create_params"]["tools"] == [TOOL]


@pytest.mark.parametrize(
    ("task", "told"),
    [
        ("nonsense", "is no JSON"),
        ({"answer": 5}, "responses_create_params: is missing"),
        ({"responses_create_params": {"input": 5}}, r"responses_create_params\.input"),
    ],
)
def test_what_is_no_task_is_refused_by_its_number(task: AnyTask, told: str) -> None:
    """Counted from 1 among those that were submitted, whichever of them were submitted before."""
    with pytest.raises(InputError, match=rf"^task 3: {told}"):
        ask([TASK, TASK, task])


def test_what_is_no_task_is_refused_by_file_and_line_where_a_file_is_submitted(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(line() + b"\n{\n")
    with path.open() as file, pytest.raises(InputError, match=rf"^{path}:2: is no JSON"):
        ask(file)


def ask(tasks: Iterable[AnyTask]) -> None:
    made = submission()
    for asked in made.asked(tasks, "solver", 0):
        made.request(group(asked), asked)


def group(asked: Asked, *, version: int = 0, size: int = 1) -> OpenGroup:
    now = datetime.now(UTC)
    index = asked.task_index
    return new_group(asked.group, agent="solver", task_index=index, epoch=0, version=version, asked=now, size=size)


def test_the_agent_may_be_left_out_where_there_is_one() -> None:
    assert submission().agent(None) == "solver"
    with pytest.raises(UsageError, match="name one of the agents: did you mean 'solver'"):
        submission().agent("solvr")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "say how large a batch is"),
        ({"groups": 2, "tokens": 5}, "say how large a batch is"),
        ({"groups": 0}, "groups is a whole number, 1 or more, not 0"),
        ({"groups": 1.5}, "groups is a whole number, 1 or more, not 1.5"),
        ({"rollouts": True}, "rollouts is a whole number, 1 or more, not True"),
        ({"tokens": "9"}, "tokens is a whole number, 1 or more, not '9'"),
        ({"rollouts": 2, "drop_zero_variance": True}, "compares the rollouts of a group"),
        ({"groups": 2, "max_lag": -1}, "max_lag is a whole number, 0 or more, not -1"),
        ({"groups": 2, "order": "random"}, "order is one of 'finish', 'fifo', not 'random'"),
        ({"groups": 2, "drop_zero_variance": 1}, "drop_zero_variance is True or False, not 1"),
        ({"groups": 2, "straggler_s": -1}, "straggler_s is a number of seconds, 0 or more, not -1"),
        ({"groups": 2, "straggler_s": math.nan}, "straggler_s is a number of seconds, 0 or more, not nan"),
        ({"groups": 2, "patience_s": None}, "patience_s is a number of seconds, 0 or more, not None"),
        ({"groups": 2, "patience_s": "1"}, "patience_s is a number of seconds, 0 or more, not '1'"),
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
    with pytest.raises((TypeError, ValueError), match=told):
        FeedOptions(**{**rest, **options})
