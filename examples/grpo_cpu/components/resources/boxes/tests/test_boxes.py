import asyncio
from typing import Any

import pytest

from components.resources.trial import Trial
from examples.grpo_cpu.components.resources.boxes.app import Boxes, BoxesConfig

TASK = {"path": ["red", "blue"], "code": "gold"}


def reward(answer: str) -> float:
    async def play() -> float:
        trial = Trial(Boxes(), TASK)
        trial.say(answer)
        return (await trial.verify()).reward

    return asyncio.run(play())


def test_each_box_of_the_path_names_the_next_and_the_last_one_holds_the_code() -> None:
    async def play() -> list[Any]:
        trial = Trial(Boxes(), TASK)
        found = [await trial.call("open", box=box) for box in ("red", "blue")]
        await trial.rebuild()
        return [*found, await trial.call("open", box="green")]

    assert asyncio.run(play()) == ['A note: open "blue".', 'The code is "gold".', '"green" is empty.']


async def test_a_box_of_a_slow_room_answers_later_and_holds_up_nobody_meanwhile() -> None:
    slow, quick = (Boxes(BoxesConfig(open_s=seconds)).open({"red": "a note"}, "red") for seconds in (3_600, 0))
    waiting = asyncio.create_task(slow)
    assert await quick == "a note"
    assert not waiting.done()
    waiting.cancel()


@pytest.mark.parametrize(
    ("answer", "earned"), [('It is "gold".', 1.0), ('"gold"', 1.0), ('"gold" or "red"', 0.0), ("gold", 0.0), ("", 0.0)]
)
def test_the_code_in_quotes_and_nothing_else_in_quotes_is_rewarded(answer: str, earned: float) -> None:
    assert reward(answer) == earned
