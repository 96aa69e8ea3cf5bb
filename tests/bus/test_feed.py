"""A trainer on a real server: what is in a batch, and when it comes."""

import asyncio
import json

import msgspec
import pytest
from structlog.testing import capture_logs

from bus import LogConfig
from contracts.events import NOTHING, Event
from contracts.ids import ROOT_CALL
from contracts.rollouts import ModelStats, RolloutFailure, RolloutRequest
from orchestrator.errors import FeedStarved
from orchestrator.settings import RetrySettings
from orchestrator.stragglers import LOOK_S
from tests.bus.events import until
from tests.bus.trainers import (
    PATIENCE_S,
    connected,
    deployed,
    held,
    ids,
    number,
    take,
    tasks,
    until_asked,
    until_ended,
)


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


async def test_f6_what_a_trainer_finds_unfinished_when_it_is_started_again_has_its_time_anew(
    server: str, config: LogConfig
) -> None:
    """The deployment may have been at rest as well: nothing of a group is late because nobody was there."""
    straggler_s = 5.0
    async with deployed(server, config) as agents:
        late: list[tuple[Event, RolloutRequest]] = []

        async def behave(event: Event, request: RolloutRequest) -> None:
            if request.rollout_index:
                late.append((event, request))
            else:
                await agents.complete(event, request)

        agents.behave = behave
        async with connected(server, config) as trainer:
            await trainer.submit(tasks(1), group_size=2)
            await until(lambda: trainer.state().unfinished_rollouts == 1)
        await asyncio.sleep(straggler_s)
        async with connected(server, config) as trainer:
            feed = trainer.feed(groups=1, straggler_s=straggler_s)
            await asyncio.sleep(2 * LOOK_S)
            await agents.complete(*late[0])
            (group,) = (await anext(feed)).groups
            assert group.rewards == [0.0, 1.0]
            assert await agents.bus.last(agents.bus.subjects.cancels_of(0)) is None


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


async def test_what_several_take_from_one_feed_is_dropped_and_counted_once(server: str, config: LogConfig) -> None:
    """F3: three tasks find the same groups of no use; a batch is dropped twice, and committed, at once."""
    async with deployed(server, config) as agents, connected(server, config) as trainer:
        agents.behave = lambda event, request: agents.complete(event, request, 1.0)
        await trainer.submit(tasks(6), group_size=2)
        await until_ended(trainer)
        batch = await take(trainer, groups=2)
        await asyncio.gather(batch.drop("too_long"), batch.drop("too_long"), batch.commit())
        trainer.no_more_tasks()
        feed = trainer.feed(groups=2, drop_zero_variance=True)
        taken = await asyncio.gather(*(anext(feed) for _ in range(3)), return_exceptions=True)
        assert [type(each) for each in taken] == [StopAsyncIteration] * 3
        assert trainer.state().dropped == {"too_long": 4, "zero_variance": 8}
        assert (trainer.state().consumed, trainer.state().staleness) == (12, {})


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


@pytest.mark.parametrize("lost", [False, True])
async def test_an_end_that_cannot_be_read_is_a_failure_of_its_rollout_only(
    server: str, config: LogConfig, lost: bool
) -> None:
    """It says what is no result, or a power cut took the large data that it refers to."""
    async with deployed(server, config) as agents, connected(server, config) as trainer:

        async def behave(event: Event, request: RolloutRequest) -> None:
            if request.rollout_index == 0:
                await agents.complete(event, request)
                return
            end = agents.bus.event("rollout.completed", event.replyto, b'{"reward": "much"}', rolloutid=event.rolloutid)
            if lost:
                end = msgspec.structs.replace(end, data=NOTHING, dataref="sha256:" + 64 * "0")
            await agents.bus.publish(end)

        agents.behave = behave
        await trainer.submit(tasks(1), group_size=2)
        (group,) = (await take(trainer, groups=1)).groups
        assert group.rewards == [0.0, None]
        assert "poison: its end cannot be read" in group.missing[group.rollouts[1].rollout_id]
        line = await group.rollouts[1].line()
        assert (line["outcome"], line["error"]["kind"], "reward" in line) == ("failed", "poison", False)


async def test_a_rollout_that_nobody_can_be_asked_for_has_failed(server: str, config: LogConfig) -> None:
    """B5, B6: where its request belongs there are bytes that are none; submitting again changes nothing."""
    elsewhere = config.model_copy(update={"namespace": f"{config.namespace}b"})
    async with deployed(server, elsewhere) as agents, connected(server, elsewhere) as trainer:
        await trainer.submit(tasks(1), group_size=2)
        await until_asked(agents, 2)
        (spoilt,) = [event.rolloutid for event, request in agents.requests if request.rollout_index == 1]
    async with deployed(server, config) as agents:
        subject = agents.bus.subjects.request("agents", "solver", 1, spoilt, ROOT_CALL)
        agents.bus._connection.send(subject.encode(), b"", b"no event")
        for _ in range(2):
            async with connected(server, config) as trainer:
                await trainer.submit(tasks(1), group_size=2)
                (group,) = (await take(trainer, groups=1)).groups
                assert group.rewards == [0.0, None]
                assert "poison" in group.missing[spoilt]
