"""Multiple choice is scored by the letter that the model chose, read as the task's grading mode says."""

from typing import Any

import msgspec
import pytest

from components.resources.errors import TaskMisfit, VerifyFailed
from components.resources.mcqa.app import ChoiceResources
from components.resources.trial import Trial

OPTIONS = [{"A": "Red wine"}, {"B": "Black tea."}, {"C": "Water"}, {"D": "Water"}]


async def _read(text: str, mode: str, **task: Any) -> tuple[float, str | None]:
    trial = Trial(ChoiceResources(), {"options": OPTIONS, "expected_answer": "B", "grading_mode": mode, **task})
    trial.say(text)
    verdict = await trial.verify()
    return verdict.reward, msgspec.json.decode(verdict.extra["extracted_answer"])


async def test_right_and_wrong_answers_to_all_tasks_earn_1_and_0(tasks: list[dict[str, Any]]) -> None:
    colon = {"lenient_answer_colon", "lenient_answer_colon_md"}
    for task in tasks:
        form = "Answer: {}" if task["grading_mode"] in colon else "I think so. \\boxed{{{}}}"
        right = task["expected_answer"]
        wrong = next(letter for option in task["options"] for letter in option if letter != right)
        for letter, reward in ((right, 1.0), (wrong, 0.0)):
            trial = Trial(ChoiceResources(), task)
            trial.say(form.format(letter))
            assert (await trial.verify()).reward == reward
        silent = Trial(ChoiceResources(), task)
        assert (await silent.verify()).reward == 0.0


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        (r"\boxed{B}", "B"),
        (r"First \boxed{A}, no: \boxed{ B }", "B"),
        (r"\boxed{(B)}", "B"),
        (r"\boxed{B.}", "B"),
        (r"\boxed{C}", "C"),
        (r"\boxed{b}", None),
        (r"\boxed{\text{B}}", None),
        (r"\boxed{BC}", None),
        (r"\boxed{B, C}", None),
        (r"\boxed{Z}", None),
        (r"\boxed{Black tea}", None),
        (r"\boxed{B} and then \boxed{}", None),
        (r"\boxed{B", None),
        ("B", None),
        ("Answer: B", None),
    ],
)
async def test_strict_takes_one_capital_letter_in_the_last_box(text: str, letter: str | None) -> None:
    assert await _read(text, "strict_single_letter_boxed") == (float(letter == "B"), letter)


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        (r"\boxed{b}", "B"),
        (r"\boxed{\text{B}}", "B"),
        (r"\boxed{\textbf{(B)}}", "B"),
        (r"\boxed{\mathrm{\text{B}}}", "B"),
        (r"\boxed{$B$}", "B"),
        (r"\boxed{black  TEA}", "B"),
        (r"\boxed{\text{Black tea}}", "B"),
        (r"\boxed{B: Black tea}", "B"),
        (r"\boxed{(B) Black tea.}", "B"),
        (r"\boxed{B: Red wine}", None),
        (r"\boxed{Water}", None),
        (r"\boxed{tea}", None),
        (r"\boxed{}", None),
        ("Answer: B", None),
    ],
)
async def test_lenient_takes_any_way_to_name_one_option_in_the_last_box(text: str, letter: str | None) -> None:
    assert await _read(text, "lenient_boxed") == (float(letter == "B"), letter)


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("Answer: B", "B"),
        ("answer : b.", "B"),
        ("Answer: A\nNo, wait.\nAnswer: B", "B"),
        ("The answer: black tea", "B"),
        (r"Answer: \boxed{B}", "B"),
        (r"Answer: \text{B}", "B"),
        ("Answer: B) Black tea", "B"),
        ("Answer: A", "A"),
        ("Answer:", None),
        ("Answer: B or C", None),
        (r"\boxed{B}", None),
        ("The answer is B", None),
    ],
)
async def test_colon_takes_the_last_line_that_says_answer(text: str, letter: str | None) -> None:
    assert await _read(text, "lenient_answer_colon") == (float(letter == "B"), letter)


@pytest.mark.parametrize("text", ["**Answer:** B", "**Answer: B**", "*Answer*: `B`", "Answer: B"])
async def test_markdown_around_the_answer_is_read_over_where_the_mode_says_so(text: str) -> None:
    assert await _read(text, "lenient_answer_colon_md") == (1.0, "B")


async def test_a_regular_expression_of_the_task_counts_before_the_mode() -> None:
    template = {"output_regex": r"choose\s+(\w+)"}
    said = r"I choose A. No: I CHOOSE b! \boxed{C}"
    assert await _read(said, "strict_single_letter_boxed", template_metadata=template) == (1.0, "B")
    assert await _read(r"\boxed{B}", "strict_single_letter_boxed", template_metadata=template) == (0.0, None)
    whole = {"output_regex": "Black tea"}
    assert await _read("Well, black tea it is", "lenient_boxed", template_metadata=whole) == (1.0, "B")


async def test_a_broken_regular_expression_is_an_error_and_no_reward() -> None:
    with pytest.raises(VerifyFailed):
        await _read("B", "lenient_boxed", template_metadata={"output_regex": "("})


async def test_a_task_whose_answer_is_no_option_is_an_error_and_no_reward() -> None:
    with pytest.raises(TaskMisfit, match="'E' is none of the options A, B, C, D"):
        await _read(r"\boxed{E}", "lenient_boxed", expected_answer="E")


async def test_long_answers_are_read_in_linear_time() -> None:
    text = "\\boxed{" * 20_000 + "answer" * 20_000 + " \t" * 20_000 + "\\text{" * 20_000
    for mode in ("strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon", "lenient_answer_colon_md"):
        assert await _read(text, mode) == (0.0, None)
