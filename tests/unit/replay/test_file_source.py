import os
from pathlib import Path

import msgspec
import pytest

from contracts.codec import decode, encode
from contracts.events import Recorded
from replay.errors import NoSource
from replay.facts import facts_of
from replay.file_source import FileSource, export_lines
from replay.rows import rows
from replay.source import load
from tests.unit.replay.examples import GOLDEN, recorded_run

BLOB = b'{"input": [{"role": "user", "content": "a very long task"}]}'


def exported(path: Path, events: list[Recorded], blobs: dict[str, bytes] | None = None) -> Path:
    path.write_bytes(b"".join(line + b"\n" for line in export_lines(events, blobs or {})))
    return path


def with_blob(recorded: Recorded) -> Recorded:
    event = msgspec.structs.replace(recorded.event, data=msgspec.Raw(b"null"), dataref="sha256:abc")
    return Recorded(seq=recorded.seq, subject=recorded.subject, event=event, raw=encode(event))


async def test_what_is_exported_reads_back_byte_for_byte(tmp_path: Path) -> None:
    """R3, the part of files."""
    log = recorded_run(2).log
    source = FileSource([exported(tmp_path / "log.jsonl", log)])
    found = [*await source.deployment()]
    for rollout in ("r1-00000-00", "r1-00001-00"):
        found += await source.history(rollout)
    assert sorted(event.raw for event in found) == sorted(event.raw for event in log)
    again = exported(tmp_path / "again.jsonl", sorted(found, key=lambda event: event.seq))
    assert again.read_bytes() == (tmp_path / "log.jsonl").read_bytes()


async def test_fields_of_a_later_version_survive(tmp_path: Path) -> None:
    """R5, the reading part."""
    recorded = recorded_run(1).log[2]
    raw = recorded.raw[:-1] + b',"colour":"green"}'
    newer = Recorded(seq=1, subject=recorded.subject, event=decode(raw), raw=raw)
    (read,) = await FileSource([exported(tmp_path / "x.jsonl", [newer])]).history("r1-00000-00")
    assert b'"colour":"green"' in read.raw


async def test_an_event_of_a_newer_major_version_is_refused_with_file_and_line(tmp_path: Path) -> None:
    recorded = recorded_run(1).log[2]
    raw = recorded.raw[:-1] + b',"dataschema":"2"}'
    path = exported(tmp_path / "x.jsonl", [Recorded(seq=1, subject="", event=recorded.event, raw=raw)])
    with pytest.raises(NoSource, match=r"x\.jsonl:1: .* has data version 2, .* upgrade JetGym"):
        await FileSource([path]).history("r1-00000-00")


async def test_data_in_a_blob_is_found_in_the_file(tmp_path: Path) -> None:
    log = recorded_run(1).log
    events = [with_blob(event) if event.event.type == "model.requested" else event for event in log]
    path = exported(tmp_path / "log.jsonl", events, {"sha256:abc": BLOB})
    assert path.read_bytes().count(b"a very long task") == 1
    trajectory = await load(FileSource([path]), "r1-00000-00")
    assert trajectory.data(trajectory.calls["m_0"].requested.event) == BLOB


async def test_a_blob_that_is_missing_is_told_with_its_event(tmp_path: Path) -> None:
    log = recorded_run(1).log
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"\n".join(with_blob(event).raw for event in log if event.event.rolloutid))
    with pytest.raises(NoSource, match=r"event refers to sha256:abc, which is not in the file"):
        await load(FileSource([path]), "r1-00000-00")


async def test_several_files_are_one_log(tmp_path: Path) -> None:
    log = recorded_run(2).log
    parts = [exported(tmp_path / "a.jsonl", log[:9]), exported(tmp_path / "b.jsonl", log[9:])]
    source = FileSource(parts)
    assert [event.raw for event in await source.history("r1-00001-00")] == [
        event.raw for event in log if event.event.rolloutid == "r1-00001-00"
    ]
    assert [event.event.type async for event in source.outline()] == ["rollout.requested", "rollout.completed"] * 2


async def test_there_is_no_history_of_a_rollout_that_is_not_there() -> None:
    assert await FileSource([GOLDEN / "solver.jsonl"]).history("nobody") == []


@pytest.mark.parametrize("line", [b"no json", b"[1, 2]", b'{"type": 3}', b'{"reward": 1.0}', b"\xff\xfe"])
def test_a_line_that_is_no_event_is_told_with_file_and_line(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(recorded_run(1).log[0].raw + b"\n\n" + line + b"\n")
    with pytest.raises(NoSource, match=r"x\.jsonl:3: not an exported event"):
        FileSource([path])


def test_a_file_that_cannot_be_read_is_told_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(NoSource, match=r"nothing\.jsonl cannot be read: No such file"):
        FileSource([tmp_path / "nothing.jsonl"])
    os.mkfifo(tmp_path / "pipe")
    for read in (FileSource.check_first, lambda path: FileSource([path])):
        with pytest.raises(NoSource, match=r"pipe is no plain file: it is read in any order, so write what comes"):
            read(tmp_path / "pipe")


async def test_where_files_overlap_an_event_stands_once(tmp_path: Path) -> None:
    """Exports of a rollout at several times, and of its whole run, are what the last one of them is."""
    log = recorded_run(2).log
    ended = [event for event in log if event.event.rolloutid == "r1-00000-00"]
    whole = exported(tmp_path / "run.jsonl", log)
    early = exported(tmp_path / "early.jsonl", ended[:4])
    joined = tmp_path / "joined.jsonl"
    joined.write_bytes(early.read_bytes() + whole.read_bytes() + whole.read_bytes())
    alone = FileSource([whole])
    for files in ([early, whole], [whole, early], [whole, whole], [joined], [joined, early]):
        source = FileSource(files)
        for rollout in ("r1-00000-00", "r1-00001-00"):
            assert [event.raw for event in await source.history(rollout)] == [
                event.raw for event in await alone.history(rollout)
            ]
        assert [event.raw for event in await source.deployment()] == [event.raw for event in await alone.deployment()]
        assert [row.rollout_id async for row in rows(source, await facts_of(source))] == ["r1-00000-00", "r1-00001-00"]
        assert {event.raw for event in source.events()} == {event.raw for event in log}


async def test_a_rollout_that_one_file_has_in_flight_ends_as_in_the_other(tmp_path: Path) -> None:
    """Also where its first copy stands behind an end that came later than its own."""
    log = recorded_run(2).log
    first, second = ([event for event in log if event.event.rolloutid == f"r1-0000{n}-00"] for n in (0, 1))
    files = [exported(tmp_path / "a.jsonl", [*second, *first[:3]]), exported(tmp_path / "b.jsonl", first)]
    source = FileSource(files)
    found = [(row.rollout_id, row.outcome) async for row in rows(source, await facts_of(source))]
    assert found == [("r1-00000-00", "completed"), ("r1-00001-00", "completed")]


def test_files_that_contradict_one_another_are_refused_with_the_line(tmp_path: Path) -> None:
    log = recorded_run(1).log
    path = exported(tmp_path / "a.jsonl", log)
    other = tmp_path / "b.jsonl"
    other.write_bytes(path.read_bytes().replace(b'"reward":', b'"reward": '))
    with pytest.raises(NoSource, match=r"b\.jsonl:\d+: line \d+ of what is read has another event in its place"):
        FileSource([path, other])
