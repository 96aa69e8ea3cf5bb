"""Invariants E1 to E3, on generated agent programs."""

import asyncio
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from components.durable import Context, Reply, reexecute
from tests.unit.components.durable.programs import agent, generate
from tests.unit.components.durable.world import START, World, histories, outcome

seeds = st.integers(0, 2**32)
quick = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])


@quick
@given(seeds, seeds)
def test_e1_every_prefix_of_a_history_reexecutes_to_the_recorded_calls_of_that_prefix(program: int, seed: int) -> None:
    world = World(agent(generate(random.Random(program))), seed)
    for length in range(len(world.log) + 1):
        history = world.history(length)
        execution = world.execution()
        unrecorded = reexecute(execution, history)
        made = world.made[world.replies(length)]
        assert unrecorded == [call for call in made if call.key not in history.calls]
        assert {call.key for call in made} >= history.calls.keys()
        execution.close()


@quick
@given(seeds, seeds)
def test_e2_a_finished_rollout_reexecutes_to_its_end_without_a_call(program: int, seed: int) -> None:
    world = World(agent(generate(random.Random(program))), seed)
    execution = world.execution()
    assert reexecute(execution, world.history()) == []
    assert execution.done
    assert outcome(execution) == world.outcome


@quick
@given(seeds, seeds)
def test_e2_a_rollout_rebuilt_from_zero_at_every_step_has_the_same_history(program: int, seed: int) -> None:
    main = agent(generate(random.Random(program)))
    straight, rebuilt = World(main, seed), World(main, seed, rebuild=True)
    assert rebuilt.log == straight.log
    assert rebuilt.outcome == straight.outcome


def test_e2_histories_are_the_same_under_any_hash_seed() -> None:
    root = Path(__file__).parents[4]
    script = "from tests.unit.components.durable.world import histories; print(histories(25))"
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            cwd=root,
            env=os.environ | {"PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("0", "1", "4711")
    ]
    assert {run.communicate()[0].strip() for run in runs} == {histories(25)}


async def fan_out(context: Context, how: str) -> str:
    """Nine calls in three times three branches, by one construct of asyncio."""

    async def one(name: str) -> bytes:
        return await context.call("models", "it", "model.requested", json.dumps(name).encode())

    async def three(name: str) -> Any:
        each = [one(f"{name}.{number}") for number in range(3)]
        return await spread(how, each)

    await spread(how, [three(str(number)) for number in range(3)])
    return "done"


async def spread(how: str, each: list[Any]) -> Any:
    match how:
        case "gather":
            await asyncio.gather(*each)
        case "group":
            async with asyncio.TaskGroup() as group:
                for one in each:
                    group.create_task(one)
        case "wait":
            await asyncio.wait([asyncio.create_task(one) for one in each])
        case "as_completed":
            for one in asyncio.as_completed(each):
                await one
        case "timeout":
            async with asyncio.timeout(100):
                await asyncio.gather(*each)
        case "cancelled":
            tasks = [asyncio.create_task(one) for one in each]
            doomed = asyncio.create_task(asyncio.sleep(1000))
            await asyncio.sleep(0)
            doomed.cancel()
            await asyncio.gather(*tasks)


@pytest.mark.parametrize("how", ["gather", "group", "wait", "as_completed", "timeout", "cancelled"])
def test_e3_call_keys_are_unique_and_do_not_depend_on_what_finishes_first(how: str) -> None:
    numberings = set()
    for seed in range(50):
        calls = World(lambda context: fan_out(context, how), seed, trouble=False).made[-1]
        models = {call.data: call.key for call in calls if call.kind == "models"}
        assert len({call.key for call in calls}) == len(calls)
        assert len(models) == 9
        numberings.add(frozenset(models.items()))
    assert len(numberings) == 1


def test_replies_to_calls_that_were_cancelled_are_consumed() -> None:
    async def main(context: Context) -> str:
        slow = asyncio.create_task(context.call("models", "slow", "model.requested", b"1"))
        await context.call("models", "quick", "model.requested", b"2")
        slow.cancel()
        return (await context.call("models", "quick", "model.requested", b"3")).decode()

    world = World(main, 0)
    execution = world.execution()
    slow, quick_one = (call.key for call in execution.start()[::-1])
    assert (slow, quick_one) == ("m1_0", "m_0")
    execution.deliver(Reply(key="m_0", type="model.replied", data=b"1", time=START))
    assert execution.outstanding == {"m_1"}
    assert execution.deliver(Reply(key="m1_0", type="model.failed", data=b"{}", time=START)) == []
    execution.deliver(Reply(key="m_1", type="model.replied", data=b"4", time=START))
    assert execution.result() == "4"
