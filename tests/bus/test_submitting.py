"""A trainer on a real server: what it may ask for, and what it refuses to."""

import asyncio
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bus import LogConfig
from orchestrator import Trainer
from orchestrator.errors import InputError, UsageError
from tests.bus.trainers import (
    PATIENCE_S,
    connected,
    deployed,
    ids,
    take,
    tasks,
    until_asked,
    until_ended,
)


async def test_f2_the_rest_of_a_group_that_a_trainer_died_over_is_asked_for(server: str, config: LogConfig) -> None:
    async with deployed(server, config) as agents:
        async with connected(server, config) as trainer:
            await trainer.submit(tasks(1), group_size=3)
            batch = await take(trainer, groups=1)
            await until_asked(agents, 3)
        event, request = agents.requests[0]
        name, half = request.group.replace("-e0-", "-e1-"), event.rolloutid.replace("-e0-", "-e1-")
        bus = agents.bus
        await bus.publish(
            bus.event(
                "rollout.requested",
                bus.subjects.request("agents", "solver", 1, half, "run"),
                msgspec.json.encode(msgspec.structs.replace(request, group=name)),
                rolloutid=half,
                callkey="run",
                replyto=bus.subjects.ended("grpo", half),
            )
        )
        async with connected(server, config) as trainer:
            batch = await take(trainer, groups=2)
            assert {group.id: len(group.rollouts) for group in batch.groups}[name] == 3


async def test_f9_submitting_the_same_tasks_again_adds_nothing(server: str, config: LogConfig) -> None:
    """F9: in the same process, after a restart, in another order, and as lines; another epoch adds all of them."""
    async with deployed(server, config) as agents:
        async with connected(server, config) as trainer:
            assert await trainer.submit(tasks(3), group_size=2) == 3
            assert await trainer.submit(reversed(tasks(3)), group_size=2) == 0
        async with connected(server, config) as trainer:
            assert await trainer.submit([json.dumps(task) for task in tasks(3)], group_size=2) == 0
            assert await trainer.submit(tasks(4), group_size=2) == 1
            assert await trainer.submit(tasks(2), group_size=2, epoch=1) == 2
            await until_asked(agents, 12)
            batch = await take(trainer, groups=6)
            assert len(list(batch.rollouts)) == len(agents.requests) == 12
            assert len({event.rolloutid for event, _ in agents.requests}) == 12


async def test_f9_a_group_keeps_its_size_and_another_one_is_refused(server: str, config: LogConfig) -> None:
    """F9: while it is open, once it is used, after a restart, and where another trainer has asked for it meanwhile."""
    refused = r"group grpo-e0-\w+ was submitted with group_size=2 before, and now with 3: keep the size, or ask for"
    async with deployed(server, config) as agents:
        async with connected(server, config, feed="other") as other:
            async with connected(server, config) as trainer:
                await trainer.submit(tasks(2), group_size=2)
                with pytest.raises(UsageError, match=refused):
                    await trainer.submit(tasks(2), group_size=3)
                with pytest.raises(UsageError, match=refused):
                    await other.submit(tasks(2), group_size=3)
                await until_ended(other)
                await (await take(trainer, groups=1)).commit()
            async with connected(server, config) as trainer:
                for task in tasks(2):
                    with pytest.raises(UsageError, match=refused):
                        await trainer.submit([task], group_size=3)
        await until_asked(agents, 4)
        async with connected(server, config, feed="third") as trainer:
            assert len(list((await take(trainer, groups=2)).rollouts)) == len(agents.requests) == 4


async def test_f9_tasks_that_are_submitted_twice_at_a_time_are_asked_for_once(server: str, config: LogConfig) -> None:
    """F9: also where both wait for room, so that neither finds the other's groups when it begins."""
    async with deployed(server, config) as agents, connected(server, config, groups=1, max_lag=0) as trainer:

        async def submit() -> int:
            return int(await trainer.submit(tasks(4), group_size=2))

        both = [asyncio.create_task(submit()) for _ in range(2)]
        given = []
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(4):
                batch = await take(trainer)
                given += ids(batch)
                await batch.commit()
                await trainer.policy_updated(trainer.version + 1)
            assert sum(await asyncio.gather(*both)) == len(set(given)) == 4
            trainer.no_more_tasks()
            assert [batch async for batch in trainer.feed()] == []
        assert len(agents.requests) == 8
        assert (trainer.state().unfinished, trainer.state().waiting, trainer.state().unfinished_rollouts) == (0, 0, 0)


async def test_an_iterator_that_only_comes_round_again_is_refused_and_stops_nobody_meanwhile(
    server: str, config: LogConfig
) -> None:
    async with deployed(server, config), connected(server, config) as trainer:
        submitting = asyncio.create_task(trainer.submit(itertools.cycle(tasks(3)), group_size=2))
        assert len(ids(await take(trainer, groups=3))) == 3
        with pytest.raises(UsageError, match=r"were all submitted before: .* submit each round with an epoch="):
            await submitting
        assert await trainer.submit(tasks(3) * 500, group_size=2) == 0
        assert await trainer.submit(iter(tasks(3) * 300), group_size=2) == 0


async def test_max_lag_without_a_measure_is_refused_before_too_much_is_asked_for(
    server: str, config: LogConfig
) -> None:
    """F5: nothing would bound what is asked for until a feed is made, and most of it would become stale."""
    async with deployed(server, config), connected(server, config, max_lag=1) as trainer:
        with pytest.raises(UsageError, match=r"say it with connect\(groups=…\), or make the feed before you submit"):
            await trainer.submit(tasks(9), group_size=1)
        trainer.feed(groups=2)
        submitting = asyncio.create_task(trainer.submit(tasks(9), group_size=1))
        assert len(ids(await take(trainer, groups=4))) == 4
        submitting.cancel()


async def test_empty_lines_of_a_file_are_no_tasks(server: str, config: LogConfig) -> None:
    async with deployed(server, config), connected(server, config) as trainer:
        lines = [f"{json.dumps(task)}\n" for task in tasks(2)]
        assert await trainer.submit([lines[0], "\n", lines[1], " \n", b""], group_size=1) == 2
        with pytest.raises(InputError, match="task 3: is no JSON"):
            await trainer.submit(["\n", lines[0], "{"], group_size=1)


async def test_an_option_that_no_trainer_has_is_refused(server: str, config: LogConfig) -> None:
    """A misspelled bound would bound nothing, and a bound that admits nothing would wait for ever."""
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"max_lags": 4}, r"no option 'max_lags'; did you mean 'max_lag'\?"),
        ({"groups": 0}, "groups is a whole number, 1 or more, not 0"),
        ({"max_lag": -1}, "max_lag is a whole number, 0 or more, not -1"),
        ({"max_lag": 1.5}, "max_lag is a whole number, 0 or more, not 1.5"),
        ({"unfinished": 0}, "unfinished is a whole number, 1 or more, not 0"),
        ({"unfinished": None}, "unfinished is a whole number, 1 or more, not None"),
        ({"models": "policy"}, "models are several names, as .*, not 'policy'"),
        ({"models": []}, r"models are several names, as .*, not \[\]"),
        ({"models": [5]}, "models are names, and 5 is none"),
        ({"retry": 2}, r"retry is RetrySettings\(…\), not 2"),
        ({"feed": "a.b"}, "feed 'a.b' may only hold the characters"),
        ({"feed": 5}, "feed 5 may only hold the characters"),
    ]
    async with deployed(server, config):
        for options, told in wrong:
            with pytest.raises((TypeError, ValueError), match=told):
                async with connected(server, config, **options):
                    pass


async def test_what_is_no_option_is_told_before_anything_is_started_or_looked_for(tmp_path: Path) -> None:
    nowhere, out = "nats://127.0.0.1:1", tmp_path / "out"
    for options, told in (
        ({"grups": 2}, "no option 'grups'; did you mean 'groups'"),
        ({"feed": "a.b"}, "feed 'a.b' may only hold"),
        ({"run": "a.b"}, "run 'a.b' may only hold"),
        ({"run": 5}, "run 5 may only hold"),
    ):
        given: Any = {"run": "grpo", **options}
        for opening in (Trainer.connect(nowhere, **given), Trainer.launch("none.yaml", output=out, **given)):
            with pytest.raises((TypeError, ValueError), match=told):
                async with opening:
                    pass
    assert not out.exists()


async def test_what_no_call_of_a_trainer_can_mean_is_refused_before_anything_happens(
    server: str, config: LogConfig
) -> None:
    """Where it is said, and not where it would have been used: a misspelled cancellation would cancel nothing."""
    async with deployed(server, config) as agents, connected(server, config, groups=1) as trainer:
        calls: list[tuple[Callable[[], Any], str]] = [
            (lambda: trainer.submit(tasks(1), group_size=0), "group_size is a whole number, 1 or more, not 0"),
            (lambda: trainer.submit(tasks(1), group_size=True), "group_size is a whole number, 1 or more, not True"),
            (lambda: trainer.submit(tasks(1), epoch=1.0), "epoch is a whole number, 0 or more, not 1.0"),
            (lambda: trainer.submit(tasks(1)[0]), r"tasks are several: give one alone as \[task\]"),
            (lambda: trainer.submit("tasks.jsonl"), r"a file as open\(…\)"),
            (lambda: trainer.submit([{"id": object()}]), "task 1: is no JSON: Encoding objects of type object"),
            (lambda: trainer.submit(iter([])), "no tasks were given: a file or an iterator gives them once"),
            (lambda: trainer.submit([{"id": "\ud800"}]), "task 1: is no JSON: 'utf-8' codec can't encode"),
            (lambda: trainer.submit(tasks(1), 5), "name one of the agents"),
            (lambda: trainer.feed(groups=0), "groups is a whole number, 1 or more, not 0"),
            (lambda: trainer.commit(trainer), "a batch of the feed is committed, not Trainer"),
            (lambda: trainer.policy_updated(1, "policy"), "models are several names"),
            (lambda: trainer.weights_changing("1").__aenter__(), "a policy version is a whole number"),
            (lambda: trainer.cancel(rollout="other-e0-0123456789abcdef-00"), "is no rollout of run 'grpo'"),
            (lambda: trainer.cancel(rollout="grpo-e0-0123456789abcdef-00"), "is no rollout of run 'grpo'"),
            (lambda: trainer.cancel(group="grpo-e0-0123456789abcdef"), "is no group of run 'grpo'"),
            (lambda: trainer.cancel(group=["a"]), "is no group of run 'grpo'"),
            (lambda: trainer.cancel(rollout="a", group="b"), "name a rollout or a group, not both"),
            (lambda: trainer.cancel(reason=5), "reason is a text, not 5"),
        ]
        for call, told in calls:
            with pytest.raises((TypeError, ValueError, UsageError, InputError), match=told):
                await call()
        await trainer.submit(tasks(1), group_size=2)
        batch = await take(trainer)
        async with connected(server, config) as again:
            with pytest.raises(ValueError, match="this batch is of another connection of a trainer"):
                await again.commit(batch)
            assert ids(await take(again, groups=1)) == ids(batch)
        with pytest.raises(ValueError, match="reason 'no good' may only hold"):
            await batch.drop("no good")
        await batch.drop("short")
        await batch.commit()
        assert (trainer.state().dropped, trainer.state().consumed) == ({"short": 2}, 2)
        assert len(agents.requests) == 2
