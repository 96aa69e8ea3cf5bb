"""Replay on the log of a real server, live and at rest."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from bus import Bus, EmbeddedServer, LogConfig, Subjects
from bus.run_folder import MATERIALIZED
from bus.topology import stream_info
from components.durable import Call
from contracts.deployments import RunStarted
from contracts.events import CallError
from contracts.responses import output_message
from contracts.rollouts import RolloutResult
from orchestrator.run_files import RunFiles
from replay.bulk import Bulk
from replay.errors import NoSource, UnknownName
from replay.facts import facts_of
from replay.file_source import FileSource, export_lines
from replay.names import find_rollout, find_run
from replay.opening import Where, open_source, run_in
from replay.rows import rows
from replay.source import Source, load
from replay.verify import Verdict
from tests.unit.replay.examples import CALC, calculator, recorded_run, task
from tests.unit.replay.recorder import Recorder, model_reply


@pytest.fixture
async def bus(server: str, config: LogConfig) -> AsyncIterator[Bus]:
    """A log of its own on the shared server."""
    async with await Bus.connect(server, config, name="test/replay", writer="test") as bus:
        await bus.ensure_log()
        yield bus


async def publish(bus: Bus, recorder: Recorder) -> None:
    for recorded in recorder.log:
        await bus.publish(recorded.event)


def there(server: str, config: LogConfig) -> Where:
    return Where(url=server, namespace=config.namespace)


async def verified(source: Source) -> list[Verdict]:
    facts = await facts_of(source)
    ids = [row.rollout_id async for row in rows(source, facts)]
    async with Bulk(source, facts, None, []) as bulk:
        return [verdict async for verdict in bulk.verify(ids)]


async def test_a_log_and_its_export_give_the_same_verdicts(bus: Bus, server: str, tmp_path: Path) -> None:
    """R3."""
    recorder = recorded_run(3, bus.subjects)
    await publish(bus, recorder)
    path = tmp_path / "export.jsonl"
    path.write_bytes(b"\n".join(export_lines(recorder.log, {})))
    async with open_source(there(server, bus.config)) as source:
        live = await verified(source)
        assert [row.rollout_id async for row in rows(source, await facts_of(source))] == [
            "r1-00000-00",
            "r1-00001-00",
            "r1-00002-00",
        ]
        assert [event.raw for event in await source.history("r1-00001-00")] == [
            event.raw for event in recorder.log if event.event.rolloutid == "r1-00001-00"
        ]
    assert live == await verified(FileSource([path]))
    assert {verdict.verdict for verdict in live} == {"same"}


@pytest.mark.parametrize("name", ["*", ">", "", "r1.*", "r1-00000-00.>", "r1 00000", "x" * 200, "r1\n"])
@pytest.mark.parametrize("rollouts", [1, 2])
async def test_a_name_that_is_no_rollout_id_never_reaches_the_server(
    bus: Bus, server: str, name: str, rollouts: int
) -> None:
    await publish(bus, recorded_run(rollouts, bus.subjects))
    async with open_source(there(server, bus.config)) as source:
        with pytest.raises(UnknownName, match=r"there is no rollout|an empty name means no rollout"):
            await find_rollout(source, name)


async def test_reading_and_verifying_leaves_every_stream_as_it_was(bus: Bus, server: str) -> None:
    """R1."""

    async def state() -> list[tuple[Any, Any]]:
        streams = [bus.subjects.stream(0), bus.subjects.blob_stream]
        found = [await stream_info(bus._connection, stream) for stream in streams]
        return [(info.state, info.config) for info in found]

    await publish(bus, recorded_run(3, bus.subjects))
    before = await state()
    async with open_source(there(server, bus.config)) as source:
        await verified(source)
        await load(source, await find_rollout(source, "last"))
    assert await state() == before


async def test_data_in_blobs_is_read_verified_and_exported(bus: Bus, server: str, tmp_path: Path) -> None:
    said = "very long " * 10_000

    def long(call: Call) -> bytes | CallError:
        if call.type == "model.requested" and b"function_call_output" in call.data:
            return model_reply(output_message(said, item_id="msg_1"))
        return calculator(call)

    recorder = Recorder(CALC, long, bus.subjects)
    recorder.log = recorded_run(0, bus.subjects).log
    recorder.rollout("r1-00000-00", "calc", task())
    await publish(bus, recorder)
    async with open_source(there(server, bus.config)) as source:
        trajectory = await load(source, "r1-00000-00")
        assert len(trajectory.blobs) == 1  # the reply, which the request to verify and the result cite
        assert isinstance(trajectory.outcome, RolloutResult)
        assert said.encode() in trajectory.whole_response(trajectory.outcome)
        assert trajectory.reward == 1.0
        (live,) = await verified(source)
        deployment = await source.deployment()
    path = tmp_path / "export.jsonl"
    path.write_bytes(b"\n".join(export_lines([*deployment, *trajectory.events], trajectory.blobs)))
    assert [verdict.verdict for verdict in (live, *await verified(FileSource([path])))] == ["same", "same"]


async def test_how_many_partitions_a_log_has_is_read_from_it(server: str, config: LogConfig) -> None:
    spread = LogConfig(namespace=config.namespace, partitions=3)
    subjects = Subjects(config.namespace, 3)
    recorder = recorded_run(8, subjects)
    async with await Bus.connect(server, spread, name="test/replay", writer="test") as bus:
        await bus.ensure_log()
        await publish(bus, recorder)
    assert {subjects.partition(f"r1-{index:05d}-00") for index in range(8)} == {0, 1, 2}
    async with open_source(there(server, config)) as source:
        assert [verdict.verdict for verdict in await verified(source)] == ["same"] * 8
        assert await find_rollout(source, "r1-00005") == "r1-00005-00"
        assert await find_run(source, "last") == "r1"


async def test_a_run_at_rest_is_read_from_its_directory_and_left_at_rest(tmp_path: Path) -> None:
    where = await run_at_rest(tmp_path)
    for _ in range(2):
        async with open_source(where) as source:
            assert [verdict.verdict for verdict in await verified(source)] == ["same"] * 2
    server = await EmbeddedServer.start(tmp_path / "r1" / "log", LogConfig())
    await server.stop()


async def test_two_commands_on_one_run_at_rest_wait_for_each_other(tmp_path: Path) -> None:
    where = await run_at_rest(tmp_path)

    async def read() -> int:
        async with open_source(where) as source:
            return len(await source.history("r1-00000-00"))

    async with asyncio.timeout(60):
        assert set(await asyncio.gather(read(), read(), read())) == {12}


async def test_a_live_run_is_read_from_the_server_that_it_has(
    bus: Bus, server: str, tmp_path: Path, new_directory: Callable[[], Path]
) -> None:
    await publish(bus, recorded_run(2, bus.subjects))
    folder = tmp_path / "r1"
    (folder / "log").mkdir(parents=True)
    (folder / "config.yaml").write_text(f"log: {{namespace: {bus.config.namespace}}}")
    (folder / MATERIALIZED).write_text('{"rollout_id": "r1-00000-00"}\n')
    with RunFiles(folder) as files:
        files.live({"url": server, "namespace": bus.config.namespace})
        async with open_source(Where(results=tmp_path)) as source:
            assert [verdict.verdict for verdict in await verified(source)] == ["same"] * 2
    assert list((folder / "log").iterdir()) == []


WAYS = (
    "Name the log with --url nats://HOST:PORT, or, where it is on this machine, with --run and the directory of "
    "`jetgym up` (results/d…)"
)


def guest(results: Path, run: str, url: str | None, namespace: str = "jetgym") -> Path:
    """The directory of a run that a deployment elsewhere served."""
    folder = results / run
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump({"log": {"namespace": namespace}, "server": {"url": url}}))
    (folder / MATERIALIZED).write_text(f'{{"rollout_id": "{run}-00000-00"}}\n')
    return folder


@pytest.mark.parametrize(
    ("url", "told"),
    [
        (None, "elsewhere. "),
        ("nats://127.0.0.1:1", "elsewhere: no NATS server answers at nats://127.0.0.1:1 ("),
        ("nats://me:<redacted>@h:1", "elsewhere, nats://me:<redacted>@h:1, and the secret of the URL is not kept. "),
    ],
)
async def test_a_run_whose_log_does_not_answer_says_both_ways_to_it(tmp_path: Path, url: str | None, told: str) -> None:
    folder = guest(tmp_path, "r1", url)
    with pytest.raises(NoSource) as refused:
        async with open_source(Where(results=tmp_path), "r1-00000-00"):
            pass
    assert str(refused.value).startswith(f"{folder} keeps no log, it ran on a deployment {told}")
    assert str(refused.value).endswith(WAYS)


async def test_a_run_on_a_deployment_that_has_ended_is_read_in_the_directory_of_that_one(tmp_path: Path) -> None:
    """As of `jetgym up` of yesterday; in one that does not hold the run, nothing is read."""
    results, log = tmp_path / "results", LogConfig()
    server = await EmbeddedServer.start(results / "d1" / "log", log)
    (results / "d1" / "config.yaml").write_text("log: {namespace: jetgym}")
    async with await Bus.connect(server.url, log, name="test/replay", writer="test") as bus:
        await bus.ensure_log()
        await publish(bus, recorded_run(2, bus.subjects, ["r1", "r2"]))
        await record_run(bus, "r1", 2)
    await server.stop()
    guest(results, "r1", "nats://127.0.0.1:1")
    where = Where(results=results, run="r1")
    async with open_source(where) as source:
        found = [row.rollout_id async for row in rows(source, await facts_of(source), await run_in(source, where))]
        assert found == ["r1-00000-00", "r1-00001-00"]
    guest(results, "r3", "nats://127.0.0.1:1")
    with pytest.raises(NoSource, match=r"r3 keeps no log, it ran on a deployment elsewhere: no NATS server answers"):
        async with open_source(Where(results=results, run="r3")):
            pass


async def test_a_name_that_no_run_here_has_is_told_first_where_the_newest_runs_log_does_not_answer(
    tmp_path: Path,
) -> None:
    guest(tmp_path / "results", "r1", None)
    code, out, err = await asyncio.to_thread(replay, tmp_path, "show", "nosuch")
    assert (code, out) == (2, "")
    assert err.startswith("error: no run here begins like 'nosuch'; the newest one: results/r1 keeps no log, it ran on")


async def test_a_run_on_a_deployment_elsewhere_is_read_at_the_url_that_it_recorded(
    bus: Bus, server: str, tmp_path: Path
) -> None:
    """Only this run of the several that are there."""
    await publish(bus, recorded_run(2, bus.subjects, ["r1", "r2"]))
    await record_run(bus, "r1", 2)
    guest(tmp_path / "results", "r1", server, bus.config.namespace)
    where = Where(results=tmp_path / "results")
    async with open_source(where, "last") as source:
        run = await run_in(source, where, "last")
        assert [row.rollout_id async for row in rows(source, await facts_of(source), run)] == [
            "r1-00000-00",
            "r1-00001-00",
        ]
        assert await find_rollout(source, "last", run) == "r1-00001-00"
        assert await find_rollout(source, "last") == "r2-00001-00"
    code, out, _ = await asyncio.to_thread(replay, tmp_path, "list")
    assert (code, out.count("r1-0000"), out.count("r2-0000")) == (0, 2, 0)
    code, out, err = await asyncio.to_thread(replay, tmp_path, "show", "nosuch")
    assert (code, out) == (2, "")
    assert err.startswith("error: there is no rollout 'nosuch'; there are: r1-00000-00, ")


async def test_another_log_at_the_url_of_a_run_is_not_taken_for_its_own(bus: Bus, server: str, tmp_path: Path) -> None:
    await publish(bus, recorded_run(2, bus.subjects, ["r2"]))
    await record_run(bus, "r2", 2)
    guest(tmp_path, "r1", server, bus.config.namespace)
    with pytest.raises(NoSource, match=rf"the log that is at {server} now does not hold it\. Name the log with --url"):
        async with open_source(Where(results=tmp_path)):
            pass


async def record_run(bus: Bus, run: str, rollouts: int) -> None:
    """Writes into the log what `jetgym run` writes first."""
    started = RunStarted(run_id=run, config={}, rollouts=rollouts, skipped_lines=0, inputs_sha256="")
    subject = bus.subjects.deployment("run", run)
    await bus.publish(bus.event(type="deployment.run", subject=subject, data=msgspec.json.encode(started)))


def test_a_server_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    code, out, err = replay(tmp_path, "list", "--url", "nats://127.0.0.1:1")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: no NATS server answers at nats://127.0.0.1:1")


async def test_a_log_that_is_not_there_is_one_line(server: str, tmp_path: Path) -> None:
    code, out, err = await asyncio.to_thread(replay, tmp_path, "list", "--url", server, "--namespace", "nobody")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "nobody" in err


async def run_at_rest(results: Path) -> Where:
    """A run's directory with two rollouts in the store of its own server, which does not run."""
    folder = results / "r1"
    server = await EmbeddedServer.start(folder / "log", LogConfig())
    async with await Bus.connect(server.url, LogConfig(), name="test/replay", writer="test") as bus:
        await bus.ensure_log()
        await publish(bus, recorded_run(2))
    await server.stop()
    (folder / "config.yaml").write_text("log: {namespace: jetgym}")
    (folder / MATERIALIZED).write_text('{"rollout_id": "r1-00000-00"}\n')
    return Where(results=results)


def replay(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """The command as a user types it."""
    command = [sys.executable, "-P", "-m", "replay", *arguments]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    return ran.returncode, ran.stdout, ran.stderr
