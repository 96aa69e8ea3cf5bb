"""Multiple choice: the reward is 1 if the letter that the model chose is the task's, else 0.

How the choice is read from the model's text is the task's `grading_mode`, or a regular expression of its own.
"""

import re
from functools import cached_property
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator

from components.resources import Resources, Reward, TaskFields
from components.resources.answers import last_boxed
from contracts.responses import Response

GradingMode = Literal["strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon", "lenient_answer_colon_md"]

_STRICT: Final = re.compile(r"[\s().]*([A-Z])[\s().]*")
_LETTER: Final = re.compile(r"[\s().:\[\]$]*([A-Za-z])[\s().:\[\]$]*")
_LETTER_AND_TEXT: Final = re.compile(r"\s*\(?([A-Za-z])\)?\s*[:.)-]\s*(.+)", re.DOTALL)
_MACRO: Final = re.compile(r"\\[A-Za-z]+\s*\{([^{}]*)\}")
_ANSWER: Final = re.compile(r"\banswer[ \t]*:(.*)", re.IGNORECASE)
_NO_MARKDOWN: Final = str.maketrans("", "", "*`")
_MACROS_DEEP: Final = 4


class Template(BaseModel):
    """How the task wants its answer read, if no grading mode does."""

    model_config = ConfigDict(extra="allow", frozen=True)

    output_regex: str | None = None
    """The last match counts; its first group, or all of it where it has none, is the letter or the option's text."""


class ChoiceTask(TaskFields):
    """One question."""

    options: list[dict[str, str | None]]
    """Letter to text, one option each."""
    expected_answer: str
    grading_mode: GradingMode = "strict_single_letter_boxed"
    template_metadata: Template = Template()

    @model_validator(mode="after")
    def _the_answer_is_an_option(self) -> Self:
        if self.answer not in self.choices:
            raise ValueError(
                f"expected_answer {self.expected_answer!r} is none of the options {', '.join(self.choices)}"
            )
        return self

    @cached_property
    def choices(self) -> dict[str, str]:
        """The options' texts, ready to compare, by capital letter."""
        return {key.strip().upper(): _plain(text or "") for option in self.options for key, text in option.items()}

    @property
    def answer(self) -> str:
        """The right letter."""
        return self.expected_answer.strip().upper()


class ChoiceResources(Resources):
    """No tools; the verifier reads the choice from what the model wrote."""

    async def verify(self, task: ChoiceTask, response: Response) -> Reward:
        """1 if the task's letter was chosen; `extracted_answer` is the letter read, null where none was."""
        letter = chosen(task, response.output_text)
        return Reward(reward=float(letter == task.answer), extracted_answer=letter)


def chosen(task: ChoiceTask, text: str) -> str | None:
    """The letter that `text` chooses, None where it chooses none of the options."""
    if pattern := task.template_metadata.output_regex:
        matches = list(re.finditer(pattern, text, re.IGNORECASE))
        return _lenient(task, matches[-1][1 if matches[-1].re.groups else 0]) if matches else None
    match task.grading_mode:
        case "strict_single_letter_boxed":
            found = _STRICT.fullmatch(last_boxed(text) or "")
            return found[1] if found and found[1] in task.choices else None
        case "lenient_boxed":
            return _lenient(task, last_boxed(text))
        case "lenient_answer_colon":
            return _after_colon(task, text)
        case "lenient_answer_colon_md":
            return _after_colon(task, text.translate(_NO_MARKDOWN))


def _after_colon(task: ChoiceTask, text: str) -> str | None:
    answers = _ANSWER.findall(text)
    if not answers:
        return None
    return _lenient(task, last_boxed(answers[-1]) or answers[-1])


def _lenient(task: ChoiceTask, said: str | None) -> str | None:
    r"""The option that `said` names: its letter in any case, in brackets or `\text{…}`, or its text, or both."""
    if said is None:
        return None
    for _ in range(_MACROS_DEEP):
        said = _MACRO.sub(r"\1", said)
    if found := _LETTER.fullmatch(said):
        letter = found[1].upper()
        return letter if letter in task.choices else None
    found = _LETTER_AND_TEXT.fullmatch(said)
    if found and task.choices.get(letter := found[1].upper()) == _plain(found[2]):
        return letter
    letters = [letter for letter, option in task.choices.items() if option == _plain(said)]
    return letters[0] if len(letters) == 1 else None


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).strip(" .$")
