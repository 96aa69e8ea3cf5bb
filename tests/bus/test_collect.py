"""Collecting a run on a real server: a resumed run asks only for what has not ended, and comes to its end."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from bus import Bus, LogConfig
from contracts.events import Event
from contracts.rollouts import RolloutResult
from orchestrator.collect import collect, outcomes_in_log, rollout_id_of
from orchestrator.results import Outcome
from orchestrator.tasks import MaterializedTask

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


async def run(bus: Bus, count: int, folder: Path, concurrency: int) -> list[Outcome]:
    heard: list[Outcome] = []
    await collect(bus, tasks(count), run_id="r1", output=folder, concurrency=concurrency, on_outcome=heard.append)
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
