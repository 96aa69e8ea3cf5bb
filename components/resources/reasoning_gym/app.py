"""Scores answers to procedurally generated tasks with the scorers of the `reasoning-gym` package."""

import re
import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Final

from components.resources import Resources, ResourcesConfig, Reward, TaskFields
from components.resources.answers import last_boxed
from contracts.base import JsonObject
from contracts.responses import Response

_ANSWER: Final = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)


class ReasoningTask(TaskFields):
    """One entry of a `reasoning-gym` dataset."""

    question: str
    answer: str | None = None
    metadata: JsonObject
    """`source_dataset` names the family, and with it the scorer; the rest is for the scorer."""


class ReasoningGymResources(Resources):
    """No tools; the reward is the family's score, from 0 to 1."""

    def __init__(self, config: ResourcesConfig | None = None) -> None:
        super().__init__(config)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # of a package that reasoning-gym brings along
            package = import_module("reasoning_gym")
        self._scorer: Callable[[str], Callable[[str, JsonObject], float]] = cache(package.get_score_answer_fn)

    def verify(self, task: ReasoningTask, response: Response) -> Reward:
        """The score of the answer; a scorer that raises is an error, not a reward of 0."""
        answer = answer_in(response.output_text)
        score = self._scorer(task.metadata["source_dataset"])
        entry: JsonObject = {"question": task.question, "answer": task.answer, "metadata": task.metadata}
        return Reward(reward=float(score(answer, entry)), extracted_answer=answer)


def answer_in(text: str) -> str:
    r"""The answer in a text: its last `<answer>…</answer>`, else its last `\boxed{…}`, else all of it."""
    tagged = _ANSWER.findall(text)
    answer = tagged[-1] if tagged else last_boxed(text)
    return str(text if answer is None else answer).strip()
