"""A trainer on a real server: what it finds when it starts again, who else is told, and what else befalls it."""

import asyncio
from pathlib import Path

import pytest
from rich.console import Console

from bus import Bus, EmbeddedServer, LogConfig
from bus.room import set_bound
from contracts.events import Event
from contracts.rollouts import RolloutRequest
from orchestrator import Trainer
from orchestrator.archive import archive, new_file
from orchestrator.audit import audit
from orchestrator.commands.logs import one_run, runs_of
from orchestrator.commands.status import _drawn
from orchestrator.errors import FeedStarved, FeedTaken, UsageError
from orchestrator.feed_records import feeds
from orchestrator.prune import prune
from orchestrator.status import Observer
from replay.file_source import FileSource
from replay.imports import import_events
from tests.bus.trainers import PATIENCE_S, connected, deployed, held, ids, take, tasks, until_ended


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


async def test_cancelling_a_group_names_what_has_not_ended(server: str, config: LogConfig) -> None:
    async with deployed(server, config) as agents, connected(server, config) as trainer:
        await held(agents)
        await trainer.submit(tasks(2), group_size=2)
        first, second = trainer._groups.open.values()
        for wrong in ("02", "0", "000", "00-a0", "00-a1"):
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
