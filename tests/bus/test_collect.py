"""Collecting a run on a real server: a resumed run asks only for what has not ended, and comes to its end; retries."""

import asyncio
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from bus import Bus, LogConfig
from bus.letters import letters
from contracts.deployments import RunStarted
from contracts.events import Event
from contracts.rollouts import RolloutFailure, RolloutRequest, RolloutResult
from orchestrator.asked import beginning, inputs_in_log
from orchestrator.audit import audit
from orchestrator.collect import NO_RETRY, collect, outcomes_in_log, rollout_id_of
from orchestrator.dead import requeue
from orchestrator.errors import UsageError
from orchestrator.kept import by_ends, by_outcomes, kept_of
from orchestrator.metrics import Metrics
from orchestrator.results import Outcome
from orchestrator.settings import RetrySettings
from orchestrator.tasks import MaterializedTask, input_line

TASK = b'{"responses_create_params":{"input":"hi"}}'
RESULT = msgspec.json.encode(RolloutResult(response=msgspec.Raw(b"{}"), reward=1.0))


def tasks(count: int) -> list[MaterializedTask]:
    return [MaterializedTask(agent="solver", task_index=n, rollout_index=0, line=TASK) for n in range(count)]


async def end(bus: Bus, request: Event) -> None:
    await bus.publish(bus.event("rollout.completed", request.replyto, RESULT, rolloutid=request.rolloutid))


async def work(bus: Bus) -> None:
    """Ends the rollouts that are asked for, as an agents pool would."""
    async for delivery in await bus.pool("agents", "solver", (0,), types=("rollout.requested",)):
        await end(bus, delivery.event)
        delivery.ack()


async def run(bus: Bus, count: int, folder: Path, concurrency: int, retry: RetrySettings = NO_RETRY) -> list[Outcome]:
    heard: list[Outcome] = []
    await collect(
        bus, tasks(count), run_id="r1", output=folder, concurrency=concurrency, on_outcome=heard.append, retry=retry
    )
    return heard


@pytest.mark.parametrize("concurrency", [1, 32, 300])
async def test_a_resumed_run_of_which_most_has_ended_comes_to_its_end(
    server: str, config: LogConfig, tmp_path: Path, concurrency: int
) -> None:
    async with await Bus.connect(server, config, name="orchestrator/test", writer="w") as bus:
        await bus.ensure_log()
        working = asyncio.create_task(work(bus))
        await run(bus, 400, tmp_path, 400)
        async with asyncio.timeout(60):
            heard = await run(bus, 600, tmp_path, concurrency)
        working.cancel()
        assert {outcome.rollout_id for outcome in heard} == {rollout_id_of("r1", task) for task in tasks(600)}
        assert len((tmp_path / "rollouts.jsonl").read_bytes().splitlines()) == 600


async def test_the_files_of_a_run_are_what_the_log_says(server: str, config: LogConfig, tmp_path: Path) -> None:
    async with await Bus.connect(server, config, name="orchestrator/test", writer="w") as bus:
        await bus.ensure_log()
        working = asyncio.create_task(work(bus))
        heard = await run(bus, 50, tmp_path, 10)
        working.cancel()
        again = [outcome.line async for outcome in outcomes_in_log(bus, "r1")]
        assert again == [outcome.line for outcome in heard]
        assert (tmp_path / "rollouts.jsonl").read_bytes().splitlines() == again


async def test_each_result_that_the_log_does_not_have_is_found_in_whichever_partition(
    server: str, config: LogConfig, tmp_path: Path
) -> None:
    """A power cut may take the end of one partition only: the first and the last line of the file are in the others."""
    spread = config.model_copy(update={"partitions": 3})
    names = [rollout_id_of("r1", task) for task in tasks(30)]
    async with await Bus.connect(server, spread, name="orchestrator/test", writer="w") as bus:
        await bus.ensure_log()
        cut = bus.subjects.partition(names[15])
        lost = [name for name in names[1:-1] if bus.subjects.partition(name) == cut]
        for name in names:
            if name not in lost:
                await bus.publish(
                    bus.event("rollout.completed", bus.subjects.ended("r1", name), RESULT, rolloutid=name)
                )
        lines = [b'{"rollout_id":"%s"}\n' % name.encode() for name in names]
        (tmp_path / "rollouts.jsonl").write_bytes(b"".join(lines) + lines[0][:-5])
        rollouts, failures = await kept_of(bus, "r1", tmp_path, None)
    assert 0 < len(lost) < 28
    assert (rollouts.lost, rollouts.damaged) == (lost, 1)
    assert (failures.lost, failures.damaged) == ([], 0)


@pytest.mark.parametrize("large", ["results", "requests"])
async def test_a_power_cut_may_take_what_ends_and_requests_refer_to(
    server: str, config: LogConfig, tmp_path: Path, large: str
) -> None:
    """B6, E9: each resume, or rebuild, ended by that. A result that cannot be read is a failure; its line is found."""
    filler = "x" * 4_000
    result = RolloutResult(response=msgspec.Raw(msgspec.json.encode(filler)), reward=1.0)
    found = [
        msgspec.structs.replace(
            task, line=msgspec.json.encode({"filler": filler, "responses_create_params": {"input": "hi"}})
        )
        if large == "requests" and task.task_index != 1
        else task
        for task in tasks(4)
    ]

    async def work(bus: Bus) -> None:
        async for delivery in await bus.pool("agents", "solver", (0,), types=("rollout.requested",)):
            event = delivery.event
            is_large = large == "results" and not event.rolloutid.endswith("1-00")
            data = msgspec.json.encode(result) if is_large else RESULT
            await bus.publish(bus.event("rollout.completed", event.replyto, data, rolloutid=event.rolloutid))
            delivery.ack()

    async def collected() -> list[Outcome]:
        heard: list[Outcome] = []
        await collect(bus, found, run_id="r1", output=tmp_path, concurrency=9, on_outcome=heard.append)
        return heard

    narrow = config.model_copy(update={"inline_limit": 1_024})
    async with await Bus.connect(server, narrow, name="orchestrator/test", writer="w") as bus:
        await bus.ensure_log()
        working = asyncio.create_task(work(bus))
        heard = await collected()
        working.cancel()
        await bus._connection.api(f"STREAM.PURGE.{bus.subjects.blob_stream}", None, dict[str, object])
        gone = [outcome.rollout_id for outcome in heard if not outcome.rollout_id.endswith("1-00")]
        assert len(gone) == 3
        failed = gone if large == "results" else []
        for readable, unread in ((by_outcomes, gone), (by_ends, failed)):
            rollouts, failures = await kept_of(bus, "r1", tmp_path, readable)
            assert (rollouts.lost, rollouts.unread, failures.lost, failures.unread) == ([], unread, [], [])
        again = await collected()
        assert {outcome.rollout_id for outcome in again if outcome.error == "poison"} == set(failed)
        assert [outcome.line for outcome in again if not outcome.error] == [
            outcome.line for outcome in heard if outcome.rollout_id not in failed
        ]
        rebuilt = [outcome.line async for outcome in outcomes_in_log(bus, "r1")]
        assert rebuilt == [outcome.line for outcome in again if large == "results" or outcome.rollout_id not in gone]


async def test_what_a_run_was_going_to_ask_for_is_in_the_log_once_all_is_asked_for(
    server: str, config: LogConfig, tmp_path: Path
) -> None:
    """The very lines, also of what failed and was asked for again, from several partitions; or none of them."""
    inputs = [input_line(task, rollout_id_of("r1", task)) for task in tasks(40)]
    digest = sha256(b"".join(inputs)).hexdigest()
    started = RunStarted(run_id="r1", config={}, rollouts=40, skipped_lines=0, inputs_sha256=digest)
    spread = config.model_copy(update={"partitions": 3})
    async with await Bus.connect(server, spread, name="orchestrator/test", writer="w") as bus:
        await bus.ensure_log()
        assert await beginning(bus, "r1") is None
        began = bus.event("deployment.run", bus.subjects.deployment("run", "r1"), msgspec.json.encode(started))
        await bus.publish(began)
        assert await beginning(bus, "r1") == started
        working = asyncio.create_task(fail_first(bus, {3: ("unavailable", 1)}))
        await run(bus, 30, tmp_path, 10, RetrySettings(attempts=2))
        with pytest.raises(UsageError, match="the log has 30 of the 40 tasks that r1 was going to ask for"):
            await inputs_in_log(bus, started)
        await run(bus, 40, tmp_path, 10)
        working.cancel()
        assert await inputs_in_log(bus, started) == inputs


async def test_what_has_ended_is_in_the_files_before_anything_else_ends(
    server: str, config: LogConfig, tmp_path: Path
) -> None:
    async with await Bus.connect(server, config, name="orchestrator/test", writer="w") as bus:
        await bus.ensure_log()
        running = asyncio.create_task(run(bus, 2, tmp_path, 2))
        pool = await bus.pool("agents", "solver", (0,), types=("rollout.requested",))
        first, second = [await anext(aiter(pool)) for _ in range(2)]
        await end(bus, first.event)
        async with asyncio.timeout(60):
            while not (tmp_path / "rollouts.jsonl").read_bytes():  # noqa: ASYNC110 - a file tells nobody
                await asyncio.sleep(0.05)
        await end(bus, second.event)
        await running


async def test_no_more_than_concurrency_rollouts_are_unfinished(server: str, config: LogConfig, tmp_path: Path) -> None:
    async with await Bus.connect(server, config, name="orchestrator/test", writer="w") as bus:
        await bus.ensure_log()
        collecting = asyncio.create_task(run(bus, 12, tmp_path, 3))
        pool = await bus.pool("agents", "solver", (0,), types=("rollout.requested",))
        ended = 0
        held: list[Event] = []
        async for delivery in pool:
            held.append(delivery.event)
            delivery.ack()
            if len(held) == 3:
                asked = [entry async for entry in bus.scan(f"{config.namespace}.0.agents.solver.0.request.>")]
                assert len(asked) == ended + 3
                for request in held:
                    await end(bus, request)
                ended, held = ended + 3, []
            if ended == 12:
                break
        assert len(await collecting) == 12


# --- retry ----------------------------------------------------------------------------------------------------------

RETRY = RetrySettings(attempts=3, on=("unavailable",))


async def fail_first(bus: Bus, fails: Mapping[int, tuple[str, int]]) -> None:
    """Ends what is asked for: of a task in `fails`, so many attempts fail with that kind."""
    async for delivery in await bus.pool("agents", "solver", (0,), types=("rollout.requested",)):
        request = msgspec.json.decode(delivery.event.data, type=RolloutRequest)
        kind, times = fails.get(request.task_index, ("", 0))
        if request.attempt < times:
            what = "rollout.cancelled" if kind == "cancelled" else "rollout.failed"
            data = msgspec.json.encode(RolloutFailure(kind=kind, message="not now"))
            await bus.publish(bus.event(what, delivery.event.replyto, data, rolloutid=delivery.event.rolloutid))
        else:
            await end(bus, delivery.event)
        delivery.ack()


FAILS = {
    1: ("unavailable", 2),
    2: ("unavailable", 9),
    3: ("agent_error", 9),
    4: ("cancelled", 9),
    5: ("unavailable", 1),
}


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("concurrency", [1, 100])
async def test_what_fails_is_asked_for_again_and_only_its_last_attempt_is_in_the_files(
    server: str, config: LogConfig, tmp_path: Path, concurrency: int, partitions: int
) -> None:
    """Also when the run is resumed, and rebuilt from the log; earlier attempts are counted, and stay in the log."""
    log = config.model_copy(update={"partitions": partitions})
    async with await Bus.connect(server, log, name="orchestrator/test", writer="w") as bus, asyncio.timeout(60):
        await bus.ensure_log()
        working = asyncio.create_task(fail_first(bus, FAILS))
        heard = await run(bus, 40, tmp_path, concurrency, RETRY)
        files = [(tmp_path / name).read_bytes() for name in ("rollouts.jsonl", "failures.jsonl")]
        assert sorted(outcome.task_index for outcome in heard) == list(range(40))
        found = {outcome.task_index: (outcome.rollout_id, outcome.error) for outcome in heard if outcome.task_index < 6}
        assert found == {
            0: ("r1-00000-00", None),
            1: ("r1-00001-00-a2", None),
            2: ("r1-00002-00-a2", "unavailable"),
            3: ("r1-00003-00", "agent_error"),
            4: ("r1-00004-00", "cancelled"),
            5: ("r1-00005-00-a1", None),
        }
        metrics = Metrics()
        for outcome in heard:
            metrics.add(outcome)
        summary = metrics.summary()
        assert (summary["completed"], summary["failed"], summary["cancelled"], summary["retries"]) == (37, 2, 1, 5)
        again = await run(bus, 40, tmp_path, concurrency, RETRY)
        rebuilt = [outcome.line async for outcome in outcomes_in_log(bus, "r1")]
        if partitions == 1:
            assert [outcome.line for outcome in again] == rebuilt == [outcome.line for outcome in heard]
            assert [(tmp_path / name).read_bytes() for name in ("rollouts.jsonl", "failures.jsonl")] == files
        assert {outcome.line for outcome in again} == set(rebuilt) == {outcome.line for outcome in heard}
        balance = await audit(bus, "r1")
        assert (balance.balanced, balance.requested, balance.again, balance.failed) == (True, 45, 5, 7)
        (letter,) = [found async for found in letters(bus)]
        assert letter.data.message == "failed 3 times, at last with unavailable: not now"
        assert await requeue(bus, letter) == "r1-00002-00-a3"
        more = await run(bus, 40, tmp_path, concurrency, RETRY)
        assert [outcome.rollout_id for outcome in more if outcome.task_index == 2] == ["r1-00002-00-a3"]
        working.cancel()


async def test_a_run_that_is_stopped_between_two_attempts_goes_on_with_the_next_one(
    server: str, config: LogConfig, tmp_path: Path
) -> None:
    async with await Bus.connect(server, config, name="orchestrator/test", writer="w") as bus, asyncio.timeout(60):
        await bus.ensure_log()
        first = asyncio.create_task(fail_first(bus, {0: ("unavailable", 1)}))
        assert [outcome.error for outcome in await run(bus, 1, tmp_path, 1)] == ["unavailable"]
        (outcome,) = await run(bus, 1, tmp_path, 1, RETRY)
        assert (outcome.rollout_id, outcome.attempt, outcome.reward) == ("r1-00000-00-a1", 1, 1.0)
        first.cancel()
