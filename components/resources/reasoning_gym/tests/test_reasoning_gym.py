"""Answers are scored by the scorer of the task's own family."""

from typing import Any

import msgspec
import pytest

from components.resources.errors import TaskMisfit, VerifyFailed
from components.resources.reasoning_gym.app import ReasoningGymResources, answer_in
from components.resources.trial import Trial


async def test_right_and_wrong_answers_to_all_tasks_earn_their_score(tasks: list[dict[str, Any]]) -> None:
    resources = ReasoningGymResources()
    for task in tasks:
        for text in (task["answer"], f"I think so.\n<answer>{task['answer']}</answer>"):
            right = Trial(resources, task)
            right.say(text)
            verdict = await right.verify()
            assert verdict.reward == 1.0
            assert msgspec.json.decode(verdict.extra["extracted_answer"]) == task["answer"]
        wrong = Trial(resources, task)
        wrong.say("I do not know")
        assert (await wrong.verify()).reward < 0.1
        silent = Trial(resources, task)
        assert (await silent.verify()).reward < 0.1


async def test_a_family_without_a_scorer_is_an_error_and_no_reward() -> None:
    trial = Trial(ReasoningGymResources(), {"question": "?", "answer": "1", "metadata": {"source_dataset": "unknown"}})
    trial.say("1")
    with pytest.raises(VerifyFailed, match="unknown"):
        await trial.verify()


async def test_a_scorer_that_raises_is_an_error_and_no_reward() -> None:
    metadata = {"source_dataset": "calendar_arithmetic"}
    trial = Trial(ReasoningGymResources(), {"question": "?", "answer": "Friday", "metadata": metadata})
    trial.say("Friday")
    with pytest.raises(VerifyFailed, match=r"ReasoningGymResources\.verify raised"):
        await trial.verify()


async def test_a_task_without_metadata_does_not_fit() -> None:
    trial = Trial(ReasoningGymResources(), {"question": "?", "answer": "1"})
    with pytest.raises(TaskMisfit, match="metadata"):
        await trial.verify()


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (" 42\n", "42"),
        ("The answer is 42.", "The answer is 42."),
        ("<answer>1</answer> no: <ANSWER> 42\n</ANSWER>!", "42"),
        (r"So \boxed{1}, or rather \boxed{\frac{4}{2}}.", r"\frac{4}{2}"),
        (r"\boxed{1} <answer>42</answer>", "42"),
        (r"\boxed{42", r"\boxed{42"),
        ("<answer></answer>", ""),
        ("<answer>42", "<answer>42"),
        ("", ""),
    ],
)
def test_the_answer_is_the_last_tagged_else_the_last_boxed_else_the_whole_text(text: str, answer: str) -> None:
    assert answer_in(text) == answer
