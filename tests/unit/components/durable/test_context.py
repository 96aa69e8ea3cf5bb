"""Time and randomness that follow from the log."""

import asyncio
import random
from datetime import timedelta
from uuid import UUID

import pytest

from components.durable import Context, Execution
from tests.unit.components.durable.world import START, ask, reply


async def draws(context: Context) -> list[str]:
    """Two draws beside a call, and one after it."""
    found = [str(context.uuid()), str(context.random().random())]
    await ask(context)
    return [*found, str(context.uuid())]


async def both(context: Context) -> list[str]:
    one, other = await asyncio.gather(draws(context), draws(context))
    return one + other


def run(rollout_id: str = "run-00000-00", prefix: str = "", order: tuple[str, str] = ("m1_0", "m2_0")) -> list[str]:
    execution = Execution(rollout_id, both, time=START, prefix=prefix)
    execution.start()
    for key in order:
        execution.deliver(reply(prefix + key))
    return execution.result()


def test_draws_are_all_different_and_the_same_each_time_whatever_finishes_first() -> None:
    first = run()
    assert len(set(first)) == 6
    assert run() == first
    random.seed(7)
    assert run(order=("m2_0", "m1_0")) == first


def test_another_rollout_or_a_sub_agent_draws_otherwise() -> None:
    everything = run() + run("run-00000-01") + run(prefix="m_0--")
    assert len(set(everything)) == 18


def test_drawing_does_not_number_calls() -> None:
    async def main(context: Context) -> str:
        context.uuid()
        context.random()
        await ask(context)
        return context.rollout_id

    execution = Execution("run-00000-00", main, time=START)
    assert [call.key for call in execution.start()] == ["m_0"]
    execution.deliver(reply("m_0"))
    assert execution.result() == "run-00000-00"


def test_a_uuid_is_a_random_one_by_its_form() -> None:
    assert {UUID(text).version for text in run() if "-" in text} == {4}


def test_a_generator_goes_on_by_itself() -> None:
    async def main(context: Context) -> list[float]:
        generator = context.random()
        return [generator.random() for _ in range(3)]

    execution = Execution("run-00000-00", main, time=START)
    execution.start()
    assert len(set(execution.result())) == 3


def test_a_generator_that_was_taken_before_a_forks_point_is_the_forks_own_after_it() -> None:
    async def main(context: Context) -> list[float]:
        generator = context.random()
        drawn = [generator.gauss()]  # which keeps another number for the next time
        for _ in range(2):
            await ask(context)
            drawn.append(generator.gauss())
        return drawn

    def drawn(*seeds: tuple[int, str]) -> list[float]:
        execution = Execution("fork-00000-00", main, time=START, seeds=seeds)
        execution.start()
        for key in ("m_0", "m_1"):
            execution.deliver(reply(key))
        return execution.result()

    parent, one, other = drawn((0, "parent")), drawn((0, "parent"), (1, "7/0")), drawn((0, "parent"), (1, "7/1"))
    assert parent[0] == one[0] == other[0]
    assert len({*parent, *one, *other}) == 7
    assert one == drawn((0, "parent"), (1, "7/0")), "what is drawn follows from the seed"
    assert drawn((0, "parent"), (2, "7/0"))[:2] == parent[:2]
    assert parent == drawn((0, "parent"), (1, "parent")), "a point at which the seed stays is none"


@pytest.mark.parametrize("seconds", [0.0, 1.25])
def test_now_is_the_time_of_the_latest_event(seconds: float) -> None:
    async def main(context: Context) -> str:
        assert context.now() == START
        await ask(context)
        return str(context.now())

    execution = Execution("run-00000-00", main, time=START)
    execution.start()
    execution.deliver(reply("m_0", after=seconds))
    assert execution.result() == str(START + timedelta(seconds=seconds))
