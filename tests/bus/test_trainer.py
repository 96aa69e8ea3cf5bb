"""A trainer on a real server: what it asks for, what it is fed, and what it finds when it starts again."""

import asyncio
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console
from structlog.testing import capture_logs

from bus import Bus, EmbeddedServer, LogConfig
from bus.room import set_bound
from contracts.events import Event
from contracts.rollouts import ModelStats, RolloutFailure, RolloutRequest
from orchestrator import Trainer
from orchestrator.archive import archive, new_file
from orchestrator.audit import audit
from orchestrator.commands.logs import one_run, runs_of
from orchestrator.commands.status import _drawn
from orchestrator.errors import FeedStarved, FeedTaken, InputError, UsageError
from orchestrator.feed_records import feeds
from orchestrator.prune import prune
from orchestrator.settings import RetrySettings
from orchestrator.status import Observer
from replay.file_source import FileSource
from replay.imports import import_events
from tests.bus.trainers import Agents, deployed, number, tasks

PATIENCE_S = 30.0


def connected(server: str, config: LogConfig, **options: Any) -> Any:
    return Trainer.connect(server, run="grpo", namespace=config.namespace, **options)


async def test_f1_a_batch_has_what_was_asked_for_and_the_surplus_waits(server: str, config: LogConfig) -> None:
    """F1: of ten groups, batches of four hold four, four, and at the end of it all the last two."""
    async with deployed(server, config), connected(server, config) as trainer:
        assert await trainer.submit(tasks(10), group_size=2) == 10
        trainer.no_more_tasks()
        async with asyncio.timeout(PATIENCE_S):
            batches = [batch async for batch in trainer.feed(groups=4)]
        assert [len(batch.groups) for batch in batches] == [4, 4, 2]
        assert len({group.id for batch in batches for group in batch.groups}) == 10
        assert all(group.rewards == [0.0, 1.0] for batch in batches for group in batch.groups)
        assert all(group.advantages() == [-0.5, 0.5] for batch in batches for group in batch.groups)


async def take(trainer: Trainer, **options: Any) -> Any:
    """The next batch."""
    async with asyncio.timeout(PATIENCE_S):
        return await anext(trainer.feed(**options))


def ids(*batches: Any) -> list[str]:
    return sorted(group.id for batch in batches for group in batch.groups)


async def held(agents: Agents) -> asyncio.Event:
    """Nothing ends until the event that is returned is set."""
    go = asyncio.Event()

    async def behave(event: Event, request: RolloutRequest) -> None:
        await go.wait()
        await agents.complete(event, request)

    agents.behave = behave
    return go


async def until_asked(agents: Agents, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while len(agents.requests) < count:  # noqa: ASYNC110 - the pool tells nobody
            await asyncio.sleep(0.01)


async def until_ended(trainer: Trainer) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while trainer.state().unfinished:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)


async def test_f1_a_batch_that_does_not_fill_ends_in_an_error_that_names_what_is_missing(
    server: str, config: LogConfig
) -> None:
    """F1: within the feed's patience, whether the rest runs, was never submitted, or may not be asked for."""
    async with deployed(server, config) as agents, connected(server, config) as trainer:
        await trainer.submit(tasks(1), group_size=2)
        with pytest.raises(FeedStarved, match=r"no batch of 2 groups: .*submit more tasks") as starved:
            await take(trainer, groups=2, patience_s=0.3)
        assert starved.value.missing == ()
        await held(agents)
        await trainer.submit(tasks(1, first=1), group_size=2)
        with pytest.raises(FeedStarved, match="1 groups wait, 2 rollouts have not ended; missing: grpo-e0-") as starved:
            await take(trainer, groups=2, patience_s=0.3)
        assert len(starved.value.missing) == 2
        submitting = asyncio.create_task(trainer.submit(tasks(1, first=2)))
        with pytest.raises(FeedStarved, match="nothing more is asked for at policy version 0"):
            await take(trainer, groups=2, max_lag=0, patience_s=0.3)
        submitting.cancel()


async def test_f2_what_was_not_committed_comes_again_and_what_was_committed_does_not(
    server: str, config: LogConfig
) -> None:
    """F2: a trainer that stops with one batch committed, one in hand, and rollouts that have not ended."""
    async with deployed(server, config) as agents:
        async with connected(server, config) as trainer:
            await trainer.submit(tasks(6), group_size=2)
            committed, lost = await take(trainer, groups=2), await take(trainer, groups=2)
            await committed.commit()
            await committed.commit()
            await until_ended(trainer)
            go = await held(agents)
            await trainer.submit(tasks(2, first=6), group_size=2)
        async with connected(server, config) as trainer:
            assert trainer.state().consumed == 4
            assert trainer.state().unfinished == 2
            again = await take(trainer, groups=4)
            assert set(ids(again)) > set(ids(lost))
            assert not set(ids(again)) & set(ids(committed))
            await again.commit()
            go.set()
            rest = await take(trainer, groups=2)
            await rest.commit()
            assert len(set(ids(committed, again, rest))) == 8
        async with connected(server, config) as trainer:
            assert trainer.state().waiting == trainer.state().unfinished == 0


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


async def test_commands_find_the_runs_of_trainers(server: str, config: LogConfig) -> None:
    """Like those of `jetgym run`: a trainer's run can be named, and is the one that is meant where it is the only one.

    Two feeds of it are still one run.
    """
    async with deployed(server, config) as agents:
        for feed in ("trainer", "other"):
            async with connected(server, config, feed=feed):
                pass
        assert await runs_of(agents.bus) == ["grpo"]
        assert await one_run(agents.bus, None, None) == "grpo"
        async with Trainer.connect(server, run="second", namespace=config.namespace):
            pass
        with pytest.raises(UsageError, match="the log holds 2 runs, name one with --run: grpo, second"):
            await one_run(agents.bus, None, None)


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


async def test_f7_a_restart_does_not_change_how_much_may_be_asked_for(server: str, config: LogConfig) -> None:
    """F7: at each step of a run, the capacity that a second trainer reads from the log is the first one's."""
    taken: list[dict[str, Any]] = [{"groups": 2}] * 6
    taken[3:5] = {"groups": 2, "drop_zero_variance": True}, {"rollouts": 3}
    async with deployed(server, config) as agents, connected(server, config, groups=2, max_lag=1) as trainer:
        for step, options in enumerate(taken):
            await room_is_the_same(server, config, trainer)
            submitting = asyncio.create_task(trainer.submit(tasks(20), group_size=2))
            batch = await take(trainer, **options)
            submitting.cancel()
            await asyncio.gather(submitting, return_exceptions=True)
            await room_is_the_same(server, config, trainer, in_hand=True)
            await batch.commit()
            await room_is_the_same(server, config, trainer)
            if step % 2:
                await trainer.policy_updated(trainer.version + 1)
        assert trainer.version == 3
        assert len(agents.requests) <= 2 * 20


async def test_f7_what_was_taken_ahead_or_is_committed_late_counts_at_the_version_that_trained_on_it(
    server: str, config: LogConfig
) -> None:
    """F7: one group a version. Three are taken at version 0; the fourth is committed after version 3 was announced."""
    async with deployed(server, config), connected(server, config, groups=1, max_lag=3) as trainer:
        submitting = asyncio.create_task(trainer.submit(tasks(20), group_size=2))
        ahead = [await take(trainer) for _ in range(3)]
        for version, batch in enumerate(ahead):
            await batch.commit()
            assert trainer._groups.committed_now == {2: 2}
            await room_is_the_same(server, config, trainer, in_hand=True, groups=1, max_lag=3)
            await trainer.policy_updated(version + 1)
        late = await take(trainer)
        await trainer.policy_updated(4)
        await late.commit()
        assert not trainer._groups.committed_now.total()
        await room_is_the_same(server, config, trainer, groups=1, max_lag=3)
        submitting.cancel()
        await asyncio.gather(submitting, return_exceptions=True)


async def room_is_the_same(
    server: str, config: LogConfig, trainer: Trainer, *, in_hand: bool = False, groups: int = 2, max_lag: int = 1
) -> None:
    async with connected(server, config, groups=groups, max_lag=max_lag) as second:
        assert second.version == trainer.version
        async with asyncio.timeout(PATIENCE_S):
            while second._groups.unfinished_rollouts != trainer._groups.unfinished_rollouts:
                await second._bell.wait()
        assert second._groups.committed_now == trainer._groups.committed_now
        assert set(second._groups.open) == set(trainer._groups.open)
        assert second._groups.sizes == trainer._groups.sizes
        assert in_hand or set(second._groups.ready) == set(trainer._groups.ready)


async def test_a_trainer_on_policy_that_died_before_it_announced_goes_on_with_the_next_version(
    server: str, config: LogConfig
) -> None:
    """As the page says of a restart: what it had committed has used up its version."""
    bounds = {"groups": 1, "max_lag": 0}
    async with deployed(server, config):
        async with connected(server, config, **bounds) as trainer:
            await trainer.submit(tasks(1), group_size=1)
            await (await take(trainer)).commit()
        async with connected(server, config, **bounds) as trainer:
            submitting = asyncio.create_task(trainer.submit(tasks(2), group_size=1))
            with pytest.raises(FeedStarved, match="nothing more is asked for at policy version 0"):
                await take(trainer, patience_s=0.2)
            await trainer.policy_updated(trainer.version + 1)
            assert len(ids(await take(trainer))) == 1
            await submitting


async def test_f3_what_is_staler_than_the_bound_is_refused_and_counted(server: str, config: LogConfig) -> None:
    """F3, F4: a slow trainer gets nothing that is too old; what is refused is in the log and never comes again."""
    async with deployed(server, config):
        async with connected(server, config) as trainer:
            await trainer.submit(tasks(3), group_size=2)
            await trainer.policy_updated(1)
            await trainer.submit(tasks(3, first=3), group_size=2)
            first = await take(trainer, groups=1, max_lag=1)
            await first.commit()
            assert first.groups[0].lag in (0, 1)
            await until_ended(trainer)
            await trainer.policy_updated(2)
            fresh = await take(trainer, groups=2, max_lag=1)
            assert [group.lag for group in fresh.groups] == [1, 1]
            stale = trainer.state().dropped["stale"]
            assert stale // 2 + len(first.groups) + trainer.state().waiting == 6
        async with connected(server, config) as trainer:
            assert trainer.state().dropped["stale"] == stale
            with pytest.raises(FeedStarved, match=f"rollouts dropped so far: {stale} stale"):
                await take(trainer, groups=7, patience_s=0.3)
            assert set(ids(fresh)) <= trainer._groups.open.keys()
            assert trainer.state().waiting == 6 - stale // 2 - 1


async def test_f3_with_a_bound_of_0_everything_is_on_policy(server: str, config: LogConfig) -> None:
    """F3: each batch has what was asked for at its version; nothing is refused, as nothing is asked for too early."""
    async with deployed(server, config), connected(server, config, groups=2, max_lag=0) as trainer:
        submitting = asyncio.create_task(trainer.submit(tasks(20), group_size=2))
        for version in range(1, 6):
            batch = await take(trainer)
            assert batch.lags == {0: 4}
            assert {group.version for group in batch.groups} == {version - 1}
            await batch.commit()
            await trainer.policy_updated(version)
        submitting.cancel()
        assert trainer.state().dropped == {}
        assert trainer.state().staleness == {0: 20}


async def test_f3_what_newer_weights_generated_than_were_announced_waits_until_they_are(
    server: str, config: LogConfig
) -> None:
    """F3: how stale it is nobody knows before. An engine whose numbers are not the trainer's is told of."""
    async with deployed(server, config) as agents, connected(server, config, groups=8) as trainer:
        weights = {0: (1, 1), 1: (0, 0), 2: (1, 2), 3: (1, 1)}
        agents.behave = lambda event, request: agents.complete(event, request, policy=weights[number(request)])
        await trainer.submit(tasks(2), group_size=2)
        await until_ended(trainer)
        known = await take(trainer, groups=1, max_lag=0)
        assert [agents.numbers[group] for group in ids(known)] == [1]
        unannounced = "1 of what has ended is of policy version 1, and 0 was announced last: call policy_updated"
        with pytest.raises(FeedStarved, match=unannounced):
            await take(trainer, groups=1, max_lag=0, patience_s=0.2)
        await trainer.policy_updated(1)
        assert (await take(trainer, groups=1, max_lag=0)).lags == {0: 2}
        await trainer.submit(tasks(1, first=2), group_size=2)
        await trainer.submit(tasks(1, first=3), group_size=2)
        await until_ended(trainer)
        with pytest.raises(FeedStarved, match="1 of what has ended is of policy version 2, and 1 was announced last"):
            await take(trainer, groups=1, max_lag=1, order="fifo", patience_s=0.2)
        await trainer.policy_updated(2)
        ordered = [await take(trainer, groups=1, max_lag=1, order="fifo") for _ in range(2)]
        assert [agents.numbers[batch.groups[0].id] for batch in ordered] == [2, 3]
        assert trainer.state().dropped == {}


async def test_f6_a_straggler_is_cut_at_its_deadline_and_stops_no_other_group(server: str, config: LogConfig) -> None:
    """F6: its group goes out with the reason for the one that is missing; the other groups before it."""
    async with deployed(server, config) as agents:
        late: dict[str, Event] = {}

        async def behave(event: Event, request: RolloutRequest) -> None:
            if number(request) == 0 and request.rollout_index == 1:
                late[event.rolloutid] = event
            else:
                await agents.complete(event, request)

        agents.behave = behave
        async with connected(server, config) as trainer:
            await trainer.submit(tasks(4), group_size=3)
            others = await take(trainer, groups=3, straggler_s=0.5)
            assert all(not group.missing for group in others.groups)
            (rollout,) = late
            async with asyncio.timeout(PATIENCE_S):
                async for recorded in agents.bus.scan(agents.bus.subjects.cancels_of(0), follow=True):
                    assert recorded.event.rolloutid == rollout  # as a worker of agents hears it
                    failure = RolloutFailure(kind="cancelled", message=json.loads(bytes(recorded.event.data))["reason"])
                    await agents.end(late[rollout], "cancelled", msgspec.json.encode(failure))
                    break
            (group,) = (await take(trainer, groups=1)).groups
            assert group.rewards == [0.0, None, 2.0]
            why = "cancelled: straggler: it had not ended 0.5 s after the first of its group"
            assert group.missing == {rollout: why}


async def test_a_group_is_delivered_when_some_of_it_failed(server: str, config: LogConfig) -> None:
    """F6: a failure has a reason and no reward; where nothing has a reward, a feed may leave the group out."""
    async with deployed(server, config) as agents, connected(server, config) as trainer:

        async def behave(event: Event, request: RolloutRequest) -> None:
            if request.rollout_index == 0 or number(request) == 1:
                await agents.fail(event)
            else:
                await agents.complete(event, request)

        agents.behave = behave
        await trainer.submit(tasks(1), group_size=3)
        (group,) = (await take(trainer, groups=1)).groups
        assert group.rewards == [None, 1.0, 2.0]
        assert group.advantages() == [None, -0.5, 0.5]
        assert list(group.missing.values()) == ["agent_error: it failed"]
        await trainer.submit(tasks(2, first=1), group_size=3)
        (group,) = (await take(trainer, groups=1, drop_zero_variance=True)).groups
        assert agents.numbers[group.id] == 2
        assert trainer.state().dropped == {"no_reward": 3}


async def test_t16_groups_without_a_token_to_train_on_are_dropped_and_counted(server: str, config: LogConfig) -> None:
    """T16: an engine whose tokens were refused teaches nothing, and nothing of it is delivered without a word.

    That a judge's tokens were taken changes nothing. Where none are asked for, it is counted.
    """
    async with deployed(server, config) as agents, connected(server, config) as trainer:

        async def behave(event: Event, request: RolloutRequest) -> None:
            index = request.rollout_index
            models = () if index > 2 else ("policy",)
            await agents.complete(event, request, captured=int(index == 0), flawed=int(index == 1), models=models)

        async def all_refused(event: Event, request: RolloutRequest) -> None:
            judged = {"policy": ModelStats(flawed=1), "judge": ModelStats(captured=1, generated=9, policy=(0, 0))}
            await agents.complete(event, request, captured=1, flawed=1, by_model=judged)

        agents.behave = lambda event, request: (all_refused if number(request) == 0 else behave)(event, request)
        await trainer.submit(tasks(2), group_size=5)
        with capture_logs() as logs:
            batch = await take(trainer, groups=1, order="fifo")
        (group,) = batch.groups
        assert agents.numbers[group.id] == 1
        assert [rollout.trainable for rollout in group.rollouts] == [True, False, False, False, False]
        assert [(log["rollout"][-2:], log["why"]) for log in logs if log["event"] == "no_tokens"] == [
            ("01", "tokens of policy were refused"),
            ("02", "tokens of policy were not captured: set `token_ids: true` in the model's config"),
            ("03", "policy was not called in it"),
        ]
        assert trainer.state().dropped == {"token_less": 5}
        await batch.commit()
        assert trainer.state().untrainable == 4
    async with connected(server, config) as again:
        assert again.state().untrainable == 4


async def test_f3_what_a_judge_wrote_makes_no_group_stale_and_fills_no_batch(server: str, config: LogConfig) -> None:
    """F3: its engine's version never rises; and a batch of tokens is of those that are trained on."""
    async with deployed(server, config) as agents, connected(server, config, max_lag=1, groups=4) as trainer:
        judged = {
            "policy": ModelStats(captured=1, generated=10, policy=(5, 5)),
            "judge": ModelStats(captured=1, generated=500, policy=(0, 0)),
        }
        agents.behave = lambda event, request: agents.complete(event, request, policy=(0, 5), by_model=judged)
        await trainer.policy_updated(5)
        await trainer.submit(tasks(3), group_size=2)
        batch = await take(trainer, tokens=40)
        assert [group.lag for group in batch.groups] == [0, 0]
        assert [(rollout.tokens, rollout.versions, rollout.trainable) for rollout in batch.rollouts] == [
            (10, (5, 5), True)
        ] * 4


async def test_groups_without_variance_are_dropped_and_replaced_until_the_batch_is_full(
    server: str, config: LogConfig
) -> None:
    """F1, F4: the batch has as many as asked for; those dropped are counted and do not come again."""
    async with deployed(server, config) as agents:

        async def behave(event: Event, request: RolloutRequest) -> None:
            await agents.complete(event, request, 1.0 if number(request) % 2 else None)

        agents.behave = behave
        async with connected(server, config, groups=3, max_lag=0) as trainer:
            submitting = asyncio.create_task(trainer.submit(tasks(30), group_size=2))
            batch = await take(trainer, drop_zero_variance=True)
            submitting.cancel()
            assert all(agents.numbers[group.id] % 2 == 0 for group in batch.groups)
            assert len(batch.groups) == 3
            dropped = trainer.state().dropped["zero_variance"]
            assert dropped >= 4
            await batch.commit()
        async with connected(server, config) as trainer:
            assert trainer.state().dropped == {"zero_variance": dropped}


async def test_batches_by_tokens_and_by_single_rollouts(server: str, config: LogConfig) -> None:
    """Groups until they are as many, or the next one does not fit; rollouts of which the others have not ended."""
    async with deployed(server, config) as agents, connected(server, config) as trainer:
        agents.behave = lambda event, request: agents.complete(event, request, tokens=100)
        await trainer.submit(tasks(5), group_size=2)
        batch = await take(trainer, tokens=500)
        assert len(batch.groups) == 2
        await batch.commit()
        await until_asked(agents, 10)
        full = await take(trainer, tokens=600)
        assert len(full.groups) == 3
        await full.commit()

        async def behave(event: Event, request: RolloutRequest) -> None:
            if request.rollout_index:
                await agents.complete(event, request)

        agents.behave = behave
        await trainer.submit(tasks(2, first=5), group_size=3)
        single = await take(trainer, rollouts=4)
        assert [len(group.rollouts) for group in single.groups] == [1] * 4
        await single.commit()
        assert trainer.state().consumed == 14
        assert trainer.state().unfinished == 2
        async with connected(server, config) as second:
            assert second.state().consumed == 14
            assert second.state().unfinished == 2


async def test_two_trainers_of_one_feed_are_told_before_they_train_on_the_same(server: str, config: LogConfig) -> None:
    """The second to record anything is refused; a feed of another name has the run for itself."""
    async with deployed(server, config), connected(server, config) as first, connected(server, config) as second:
        await first.submit(tasks(1), group_size=1)
        one = await take(first, groups=1)
        await second.submit(tasks(1), group_size=1)
        async with connected(server, config, feed="critic") as critic:
            assert ids(await take(critic, groups=1)) == ids(one)
        await one.commit()
        other = await take(second, groups=1)
        with pytest.raises(FeedTaken, match="another trainer has gone on with feed 'trainer' of run 'grpo'"):
            await other.commit()


async def test_a_feed_hears_of_groups_that_another_trainer_asks_for_after_it_connected(
    server: str, config: LogConfig
) -> None:
    """In all partitions, before anything of them has ended; also of one that the other died over, or both ask for."""
    config = config.model_copy(update={"partitions": 3})
    async with (
        deployed(server, config) as agents,
        connected(server, config, feed="critic") as critic,
        connected(server, config) as first,
    ):
        go = await held(agents)
        await first.submit(tasks(5), group_size=3)
        async with asyncio.timeout(PATIENCE_S):
            while critic.state().unfinished < 5:
                await critic._bell.wait()
        assert critic._groups.sizes == first._groups.sizes
        go.set()
        batch = await take(critic, groups=5)
        assert ids(batch) == ids(await take(first, groups=5))
        assert all(group.rewards == [0.0, 1.0, 2.0] for group in batch.groups)
        await batch.commit()
        assert critic.state().staleness == {0: 15}
        event, request = agents.requests[0]
        name, half = request.group.replace("-e0-", "-e1-"), event.rolloutid.replace("-e0-", "-e1-")
        asked = agents.bus.event(
            "rollout.requested",
            agents.bus.subjects.request("agents", "solver", 1, half, "run"),
            msgspec.json.encode(msgspec.structs.replace(request, group=name)),
            rolloutid=half,
            callkey="run",
            replyto=agents.bus.subjects.ended("grpo", half),
        )
        await agents.bus.publish(asked)
        for trainer in (critic, first):
            (group,) = (await take(trainer, groups=1)).groups
            assert (group.id, group.rewards) == (name, [0.0, 1.0, 2.0])
        both = (trainer.submit(tasks(20, first=5), group_size=3) for trainer in (critic, first))
        assert sum(await asyncio.gather(*both)) >= 20
        for trainer in (critic, first):
            assert len(ids(await take(trainer, groups=20))) == 20
            assert (trainer.state().unfinished, trainer.state().unfinished_rollouts) == (0, 0)
        assert len(agents.requests) == 3 * (5 + 1 + 20)


async def test_what_a_rollout_said_is_read_when_it_is_asked_for(server: str, config: LogConfig) -> None:
    async with deployed(server, config), connected(server, config) as trainer:
        await trainer.submit(tasks(1), group_size=2)
        batch = await take(trainer, groups=1)
        rollout = next(batch.rollouts)
        assert (await rollout.response()).id == "r"
        line = await rollout.line()
        assert (line["rollout_id"], line["reward"]) == (rollout.rollout_id, 0.0)


async def test_failed_rollouts_are_asked_for_again_and_the_group_waits_for_them(server: str, config: LogConfig) -> None:
    """As `retry` says; also by a trainer that starts again in between."""
    async with deployed(server, config) as agents:
        go = asyncio.Event()

        async def behave(event: Event, request: RolloutRequest) -> None:
            if request.attempt == 0 and request.rollout_index == 1:
                await agents.fail(event, "unavailable")
            elif request.attempt:
                await go.wait()
                await agents.complete(event, request)
            else:
                await agents.complete(event, request)

        agents.behave = behave
        retry = RetrySettings(attempts=2)
        async with connected(server, config, retry=retry) as trainer:
            await trainer.submit(tasks(1), group_size=2)
            await until_asked(agents, 3)
        async with connected(server, config, retry=retry) as trainer:
            assert trainer.state().unfinished_rollouts == 1
            go.set()
            (group,) = (await take(trainer, groups=1)).groups
            assert group.rewards == [0.0, 1.0]
            assert group.rollouts[1].rollout_id.endswith("-01-a1")


async def test_policy_versions_only_rise_and_are_in_the_log(server: str, config: LogConfig) -> None:
    async with deployed(server, config, models=("policy", "judge")):
        with pytest.raises(UsageError, match=r"which models are trained\? Name them with models="):
            async with connected(server, config):
                pass
        async with connected(server, config, models=["policy"]) as trainer:
            async with trainer.weights_changing(3):
                pass
            await trainer.policy_updated(3)
            with pytest.raises(ValueError, match="policy version 2 is older than 3"):
                await trainer.policy_updated(2)
            for none in (-1, 2**31, 4.0, "5", True):
                with pytest.raises(ValueError, match="a policy version is a whole number from 0 to"):
                    await trainer.policy_updated(none)
            with pytest.raises(ValueError, match="judges: not among the models that are trained"):
                await trainer.policy_updated(4, models=["judges"])
        async with connected(server, config, models=["policy"]) as trainer:
            assert trainer.version == 3


async def test_cancelling_a_group_names_what_has_not_ended(server: str, config: LogConfig) -> None:
    async with deployed(server, config) as agents, connected(server, config) as trainer:
        await held(agents)
        await trainer.submit(tasks(2), group_size=2)
        first, second = trainer._groups.open.values()
        for wrong in ("02", "0", "000", "00-a0"):
            with pytest.raises(ValueError, match=f"-{wrong}' is no rollout of run 'grpo'"):
                await trainer.cancel(rollout=f"{first.id}-{wrong}")
        await trainer.cancel(group=first.id)
        await trainer.cancel(rollout=second.members[0].rollout)
        found = {recorded.event.rolloutid async for recorded in agents.bus.scan(agents.bus.subjects.cancels_of(0))}
        assert found == {member.rollout for member in (*first.members, second.members[0])}
        await trainer.cancel(reason="enough")
        assert await agents.bus.last(agents.bus.subjects.cancel_run(0, "grpo")) is not None


async def test_status_shows_versions_and_feeds_with_their_staleness(server: str, config: LogConfig) -> None:
    async with deployed(server, config) as agents:
        observer = Observer(agents.bus, "here", workers=None, store=None)
        assert (await observer.look()).policies == {}
        async with connected(server, config) as trainer:
            await trainer.submit(tasks(3), group_size=2)
            await trainer.policy_updated(2)
            await (await take(trainer, groups=1)).commit()
            await take(trainer, groups=2)
            found = await observer.look()
            assert found.policies == {"policy": 2}
            (feed,) = found.feeds
            assert (feed.run, feed.feed, feed.rollouts, feed.staleness, feed.refused) == (
                "grpo",
                "trainer",
                2,
                {2: 2},
                {},
            )
            assert feed.unfinished + feed.waiting == 2
            console = Console(width=200)
            with console.capture() as said:
                console.print(_drawn([found]))
            assert "policy of policy: version 2" in said.get()
            assert "feed trainer of run grpo: 2 rollouts taken up to version 2, staleness 2 at 2; then" in said.get()


async def test_a_result_line_names_its_group_and_its_policy_versions(server: str, config: LogConfig) -> None:
    """Those that generated it, where any is recorded; else the one when it was asked for."""
    async with deployed(server, config) as agents, connected(server, config) as trainer:

        async def behave(event: Event, request: RolloutRequest) -> None:
            await agents.complete(event, request, policy=(1, 3) if request.rollout_index else None)

        agents.behave = behave
        await trainer.policy_updated(2)
        await trainer.submit(tasks(1), group_size=2)
        (group,) = (await take(trainer, groups=1)).groups
        lines = [await rollout.line() for rollout in group.rollouts]
        assert [line["policy_versions"] for line in lines] == [[2, 2], [1, 3]]
        assert {line["group"] for line in lines} == {group.id}
        assert [rollout.versions for rollout in group.rollouts] == [(2, 2), (1, 3)]
        assert group.lag == 1


async def test_an_end_that_cannot_be_read_is_a_failure_of_its_rollout_only(server: str, config: LogConfig) -> None:
    async with deployed(server, config) as agents, connected(server, config) as trainer:
        agents.behave = lambda event, request: (
            agents.end(event, "completed", b'{"reward": "much"}')
            if request.rollout_index
            else agents.complete(event, request)
        )
        await trainer.submit(tasks(1), group_size=2)
        (group,) = (await take(trainer, groups=1)).groups
        assert group.rewards == [0.0, None]
        assert "poison: its end cannot be read" in group.missing[group.rollouts[1].rollout_id]
        line = await group.rollouts[1].line()
        assert (line["outcome"], line["error"]["kind"], "reward" in line) == ("failed", "poison", False)


async def test_a_trainer_on_a_full_log_waits_and_goes_on_when_there_is_room(server: str, config: LogConfig) -> None:
    """B9: who is fed is told why nothing comes; nothing is lost, asked for twice or forgotten."""
    config = config.model_copy(update={"max_bytes": 200_000})
    async with deployed(server, config) as agents, connected(server, config) as trainer:
        large = [{**task, "notes": "n" * 4_000} for task in tasks(60)]
        submitting = asyncio.create_task(trainer.submit(large, group_size=2))
        full = r"the log is full, and everything waits for room in it: `jetgym log prune` or `jetgym log resize`"
        with pytest.raises(FeedStarved, match=full):
            await take(trainer, groups=60, patience_s=0.5)
        assert not submitting.done()
        await set_bound(agents.bus, -1)
        async with asyncio.timeout(PATIENCE_S):
            assert await submitting == 60
        assert len(list((await take(trainer, groups=60)).rollouts)) == len(agents.requests) == 120


async def test_a_run_in_several_partitions_is_fed_and_found_again_whole(server: str, config: LogConfig) -> None:
    config = config.model_copy(update={"partitions": 3})
    async with deployed(server, config) as agents:
        async with connected(server, config) as trainer:
            await trainer.submit(tasks(10), group_size=3)
            first = await take(trainer, groups=5)
            await first.commit()
            assert {agents.bus.subjects.partition(rollout.rollout_id) for rollout in first.rollouts} == {0, 1, 2}
        async with connected(server, config) as trainer:
            assert await trainer.submit(tasks(10), group_size=3) == 0
            second = await take(trainer, groups=5)
            assert len(set(ids(first, second))) == 10


async def test_an_archive_of_a_trainers_run_is_the_whole_of_it(server: str, config: LogConfig, tmp_path: Path) -> None:
    """Imported elsewhere it has the same audit and feeds, and a trainer finds what it left; pruned it is gone whole."""
    spread = config.model_copy(update={"partitions": 3})
    path = tmp_path / "archive.jsonl"
    async with deployed(server, spread) as agents:
        async with connected(server, spread) as trainer:
            await trainer.submit(tasks(5), group_size=3)
            await (await take(trainer, groups=2)).commit()
            await trainer.policy_updated(3)
            batch = await take(trainer, groups=1, max_lag=9)
            await batch.commit()
            await until_ended(trainer)
            await trainer.cancel(rollout=batch.groups[0].rollouts[0])
            await trainer.cancel()
            left = trainer.state()
        async with (
            connected(server, spread, feed="other"),
            Trainer.connect(server, run="another", namespace=spread.namespace) as another,
        ):
            await another.submit(tasks(1), group_size=1)
            await until_ended(another)
        with new_file(path) as file:
            await archive(agents.bus, "grpo", file)
        told = await audit(agents.bus, "grpo")
        fed = [feed for feed in await feeds(agents.bus) if feed.run == "grpo"]
    source = FileSource([path])
    elsewhere = await EmbeddedServer.start(tmp_path / "store", spread)
    try:
        async with await Bus.connect(elsewhere.url, spread, name="test/imported", writer="imported") as bus:
            await bus.ensure_log()
            events = (await import_events(source, bus)).events
            assert (await import_events(source, bus)).there == events
            assert await audit(bus, "grpo") == told
            assert (told.balanced, told.requested, told.completed) == (True, 15, 15)
            assert await feeds(bus) == fed
            assert [feed.rollouts for feed in fed] == [9, 0]
            async with connected(elsewhere.url, spread) as trainer:
                assert trainer.state() == left
            assert (await prune(bus, ["grpo"])).events
            assert await runs_of(bus) == []
            async with connected(elsewhere.url, spread) as trainer:
                assert (trainer.version, trainer.state().consumed) == (3, 0)
    finally:
        await elsewhere.stop()


async def test_a_commit_that_its_caller_no_longer_waits_for_is_whole(server: str, config: LogConfig) -> None:
    """The next commit finds its place behind it."""
    async with deployed(server, config), connected(server, config) as trainer:
        await trainer.submit(tasks(2), group_size=1)
        first, second = await take(trainer, groups=1), await take(trainer, groups=1)
        committing = asyncio.create_task(first.commit())
        await asyncio.sleep(0)
        committing.cancel()
        await second.commit()
        assert trainer.state().consumed == 2
