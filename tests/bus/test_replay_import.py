"""`replay export` and `import` on the log of a real server."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from bus import Bus, EmbeddedServer, LogConfig, Subjects
from contracts.codec import decode, encode
from contracts.events import Recorded
from replay.bulk import Bulk
from replay.errors import CannotImport, Contradicted, NoSource
from replay.exports.lines import event_lines
from replay.facts import facts_of
from replay.file_source import FileSource, export_lines
from replay.imports import import_events, log_of_file
from replay.log_source import LogSource
from replay.names import find_rollout
from replay.rows import rows
from replay.source import Source
from replay.verify import Verdict
from tests.unit.replay.examples import overlapping, recorded_run, task
from tests.unit.replay.test_cli import Replay, replay, write

__all__ = ["replay"]


@pytest.fixture
async def bus(server: str, config: LogConfig) -> AsyncIterator[Bus]:
    """A log of its own on the shared server."""
    async with await Bus.connect(server, config, name="test/import", writer="test") as bus:
        await bus.ensure_log()
        yield bus


def file(path: Path, events: list[Recorded], blobs: dict[str, bytes] | None = None) -> FileSource:
    path.write_bytes(b"".join(line + b"\n" for line in export_lines(events, blobs or {})))
    return FileSource([path])


def with_colour(recorded: Recorded) -> Recorded:
    raw = recorded.raw[:-1] + b',"colour":"green"}'
    return Recorded(seq=recorded.seq, subject=recorded.subject, event=decode(raw), raw=raw)


async def exported(source: Source) -> bytes:
    ids = [each.event.rolloutid async for each in source.outline() if each.event.type == "rollout.requested"]
    return b"".join([line + b"\n" async for line in event_lines(source, ids, frozenset({"r1"}))])


async def verdicts(source: Source) -> list[Verdict]:
    ids = [each.event.rolloutid async for each in source.outline() if each.event.type == "rollout.requested"]
    async with Bulk(source, await facts_of(source), None, []) as bulk:
        return [verdict async for verdict in bulk.verify(ids)]


async def test_r3_an_export_of_an_import_is_the_same_bytes_and_has_the_same_verdicts(bus: Bus, tmp_path: Path) -> None:
    """R5 too: a field of a later version, and a blob over several lines, come back as they were."""
    log = [with_colour(each) for each in recorded_run(3, bus.subjects).log]
    data = b'{\n"over": "lines"}'
    place = next(number for number, each in enumerate(log) if each.event.type == "verify.requested")
    event = msgspec.structs.replace(log[place].event, data=msgspec.Raw(b"null"), dataref=await bus.store_blob(data))
    log[place] = Recorded(seq=log[place].seq, subject=event.subject, event=event, raw=encode(event))
    source = file(tmp_path / "log.jsonl", log, {event.dataref: data})
    assert (await log_of_file(source)).namespace == bus.config.namespace
    told = await import_events(source, bus)
    assert (told.rollouts, told.events, told.there, told.blobs) == (3, len(log), 0, 1)
    there = LogSource(bus, "there")
    assert await exported(there) == await exported(source)
    assert [found.verdict for found in await verdicts(there)] == ["differs", "same", "same"]
    strip = [msgspec.structs.replace(found, departure=None) for found in await verdicts(source)]
    assert [msgspec.structs.replace(found, departure=None) for found in await verdicts(there)] == strip


async def test_an_import_has_the_order_of_ending_and_the_last_of_its_log(server: str, tmp_path: Path) -> None:
    ending = ["r1-00002-00", "r1-00003-00", "r1-00000-00", "r1-00004-00", "r1-00001-00"]
    config = LogConfig(namespace="ordered", partitions=2)
    events = overlapping(recorded_run(5, Subjects("ordered", 2)), [2, 3, 0, 4, 1])
    export = file(tmp_path / "log.jsonl", events)
    async with await Bus.connect(server, config, name="test/import", writer="test") as bus:
        await bus.ensure_log()
        await import_events(export, bus)
        for source in (export, LogSource(bus, "there")):
            assert [row.rollout_id async for row in rows(source, await facts_of(source))] == ending
            assert await find_rollout(source, "last") == ending[-1]


async def test_importing_twice_adds_nothing(bus: Bus, tmp_path: Path) -> None:
    source = file(tmp_path / "log.jsonl", recorded_run(2, bus.subjects).log)
    first = await import_events(source, bus)
    before = await exported(LogSource(bus, "there"))
    again = await import_events(source, bus)
    assert (again.events, again.there) == (first.events, first.events)
    assert await exported(LogSource(bus, "there")) == before


async def test_a_file_that_contradicts_the_log_is_refused_and_nothing_is_written(bus: Bus, tmp_path: Path) -> None:
    log = recorded_run(2, bus.subjects).log
    await import_events(file(tmp_path / "1.jsonl", [each for each in log if "r1-00001" not in each.subject]), bus)
    before = await exported(LogSource(bus, "there"))
    other = [
        with_colour(each) if each.event.type == "verify.replied" and "r1-00000" in each.subject else each
        for each in log
    ]
    with pytest.raises(Contradicted, match="the log has another event in the place of event"):
        await import_events(file(tmp_path / "2.jsonl", other), bus)
    assert await exported(LogSource(bus, "there")) == before


async def test_a_log_that_workers_serve_is_refused(bus: Bus, tmp_path: Path) -> None:
    """They would take the recorded requests for new ones."""
    pool = await bus.pool("models", "policy", [0], types=["model.requested"])
    try:
        with pytest.raises(CannotImport, match="models/policy"):
            await import_events(file(tmp_path / "1.jsonl", recorded_run(1, bus.subjects).log), bus)
    finally:
        await pool.close()


async def test_a_blob_that_was_changed_is_refused(bus: Bus, tmp_path: Path) -> None:
    log = recorded_run(1, bus.subjects).log
    event = msgspec.structs.replace(log[-1].event, data=msgspec.Raw(b"null"), dataref="sha256:abc")
    log[-1] = Recorded(seq=log[-1].seq, subject=event.subject, event=event, raw=encode(event))
    with pytest.raises(NoSource, match="another digest"):
        await import_events(file(tmp_path / "1.jsonl", log, {"sha256:abc": b"{}"}), bus)


async def test_a_rollout_of_more_events_than_the_server_answers_at_once_is_streamed_in_order(bus: Bus) -> None:
    """R6."""
    template = next(each for each in recorded_run(1, bus.subjects).log if each.event.type == "model.requested")
    acks = []
    for number in range(1100):
        event = msgspec.structs.replace(
            template.event,
            id=f"e-{number}",
            callkey=f"m_{number}",
            subject=template.subject.removesuffix("m_0") + f"m_{number}",
        )
        acks.append(await bus.post(event))
    await asyncio.gather(*acks)
    found = [recorded.event.callkey async for recorded in LogSource(bus, "there").stream("r1-00000-00")]
    assert found == [f"m_{number}" for number in range(1100)]


def test_each_run_of_an_imported_log_is_listed_and_named_like_one_that_ran_here(replay: Replay, tmp_path: Path) -> None:
    recorder = recorded_run(2)
    recorder.rollout("r2-00000-00", "calc", task())
    write(tmp_path / "log.jsonl", recorder)
    assert replay("import", "log.jsonl", "--output", "results/old")[0] == 0

    def ids(*arguments: str) -> list[str]:
        code, out, err = replay("list", *arguments, "--json")
        assert code == 0, err
        return [row.get("rollout_id", row["run_id"]) for row in map(json.loads, out.splitlines())]

    assert ids("--runs") == ["r2", "r1"]
    assert ids("--runs", "--run", "results/old") == ["r1", "r2"]
    assert ids("--runs", "--run", "r2") == ids("--runs", "--run", "last") == ["r2"]
    assert ids("--run", "r1") == ["r1-00000-00", "r1-00001-00"]
    assert ids() == ids("--run", "last") == ["r2-00000-00"]
    assert ids("--run", "results/old") == ["r1-00000-00", "r1-00001-00", "r2-00000-00"]
    assert "r1-00001-00" in replay("show", "last", "--run", "r1")[1]
    assert json.loads(replay("stats", "r1", "--quick", "--json")[1])["rollouts"] == 2
    (verdict,) = map(json.loads, replay("verify", "last", "--run", "r1", "--json")[1].splitlines())
    assert verdict["rollout_id"] == "r1-00001-00", "the last one of the run, not of its directory"


def test_an_import_that_is_refused_leaves_no_directory_behind(replay: Replay, tmp_path: Path) -> None:
    """Else half of it is listed as a run, and the corrected file does not get its name."""
    write(tmp_path / "log.jsonl", recorded_run(1))
    text = (tmp_path / "log.jsonl").read_text()
    (tmp_path / "ended.jsonl").write_text(text.replace('"reward":', '"reward": '))
    (tmp_path / "deployed.jsonl").write_text(text.replace('"partitions":', '"partitions": '))
    for other in ("ended.jsonl", "deployed.jsonl"):
        code, _, err = replay("import", "log.jsonl", other, "--output", "results/old")
        assert (code, "not exports of one log" in " ".join(err.split())) == (2, True), err
        assert not (tmp_path / "results" / "old").exists()
    assert replay("import", "log.jsonl", "log.jsonl", "--output", "results/old", "--json")[0] == 0


async def test_an_import_into_a_log_without_room_ends_and_says_so(tmp_path: Path) -> None:
    """It waits for nobody, who might make some."""
    log = LogConfig(max_bytes=20_000)
    server = await EmbeddedServer.start(tmp_path / "store", log)
    try:
        async with await Bus.connect(server.url, log, name="test/import", writer="test") as bus:
            await bus.ensure_log()
        write(tmp_path / "log.jsonl", recorded_run(20))
        command = [sys.executable, "-P", "-m", "replay", "import", "log.jsonl", "--url", server.url]
        ran = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, stderr=asyncio.subprocess.PIPE)
        async with asyncio.timeout(60):
            _, said = await ran.communicate()
        assert (ran.returncode, b"error: the log is full" in said) == (2, True), said
    finally:
        await server.stop()
