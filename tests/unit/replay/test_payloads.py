"""What a long rollout says is not in memory, and it makes no difference to anything that is told of it."""

import io
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from components.agents.simple_agent.app import SimpleAgent
from components.durable import Call
from contracts.events import CallError, Recorded
from contracts.responses import output_message
from replay import payloads
from replay.diff import difference
from replay.document import document
from replay.engine import departure_of
from replay.errors import NoRoom
from replay.exports.otlp import traces
from replay.exports.page import html_page
from replay.file_source import FileSource, export_lines
from replay.fork import Changes, Plan
from replay.parts import json_parts
from replay.payloads import Heads, Listed, Payloads
from replay.points import point
from replay.source import load
from replay.stepping import Stepper
from replay.story import Story
from replay.trajectory import Trajectory
from tests.unit.replay.examples import CALC, CALCULATOR, calculator, edited, facts, recorded_run, task
from tests.unit.replay.recorder import Recorder, model_reply


def tedious(call: Call) -> bytes | CallError:
    """Says much, so that later requests cite it."""
    if call.type == "model.requested" and b"function_call_output" in call.data:
        return model_reply(output_message("the same over and over " * 400, item_id="msg_1"))
    return calculator(call)


def recorded() -> Recorder:
    recorder = Recorder(CALC, tedious)
    recorder.log = recorded_run(0).log
    recorder.rollout("r1-00000-00", "calc", task("What are 5 + 7 and 5 * 7? " * 300))
    return recorder


async def loaded(path: Path, events: list[Recorded]) -> Trajectory:
    return await load(written(path, events), "r1-00000-00")


def written(path: Path, events: list[Recorded]) -> FileSource:
    path.write_bytes(b"".join(line + b"\n" for line in export_lines(events, {})))
    return FileSource([path])


async def both(folder: Path, monkeypatch: pytest.MonkeyPatch, events: list[Recorded]) -> tuple[Trajectory, Trajectory]:
    """The trajectory as one that is short, and as one that is long."""
    short = await loaded(folder / "log.jsonl", events)
    monkeypatch.setattr(payloads, "HELD", 0)
    monkeypatch.setattr(payloads, "SMALL", 0)
    long = await loaded(folder / "log.jsonl", events)
    assert all(found.raw for found in short.events)
    assert not any(found.raw or len(bytes(found.event.data)) > 4 for found in long.events)
    return short, long


def story(trajectory: Trajectory) -> str:
    output = io.StringIO()
    Story(trajectory, Console(file=output, width=100, highlight=False), full=True).draw()
    return output.getvalue()


TOLD: dict[str, Callable[[Trajectory], object]] = {
    "show": story,
    "show --json": lambda found: b"".join(document(found, facts(recorded()))),
    "html": lambda found: "".join(html_page(found, facts(recorded()))),
    "otlp": lambda found: b"".join(traces(found, content=True)),
    "fork": lambda found: [
        (each.event.id, each.event.subject, found_data(plan, each))
        for plan in [Plan(found, point(found, "end"), Changes()).trajectory()]
        for each in plan.events
        if each.event.type != "rollout.requested"
    ],
}


def found_data(trajectory: Trajectory, recorded: Recorded) -> bytes:
    return trajectory.data(recorded.event)


@pytest.mark.parametrize("what", TOLD)
async def test_the_same_is_told_of_a_long_rollout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    short, long = await both(tmp_path, monkeypatch, recorded().log)
    assert TOLD[what](long) == TOLD[what](short)


async def test_two_long_rollouts_differ_as_short_ones_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Recorder(CALC, calculator)
    other.rollout("r1-00000-00", "calc", task())
    short, long = await both(tmp_path, monkeypatch, recorded().log)
    told = [b"".join(difference(found, await loaded(tmp_path / "other", other.log)).json()) for found in (short, long)]
    assert told[0] == told[1]
    assert msgspec.json.decode(told[0])["verdict"] == "differs"


async def test_a_long_rollout_is_verified_with_the_verdict_of_a_short_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it departs: the field is named, though the request is known by its digest."""
    log = recorded().log
    requests = [found for found in log if found.event.type == "model.requested"]
    tampered = edited(log, requests[0].seq, b"5 + 7", b"5 - 7")
    for events, same in ((log, True), (tampered, False)):
        monkeypatch.undo()
        found = await both(tmp_path, monkeypatch, events)
        told = [departure_of(each, next(each.executions()), SimpleAgent, CALCULATOR) for each in found]
        assert told[0] == told[1]
        assert (told[0] is None) is same
        assert told[0] is None or told[0].field.startswith("data.request.input")


async def test_one_steps_through_a_long_rollout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short, long = await both(tmp_path, monkeypatch, recorded().log)
    places: list[list[object]] = []
    for found in (short, long):
        stepper = Stepper(found, next(found.executions()), SimpleAgent, CALCULATOR)
        places.append([])
        for position in [*range(stepper.last + 1), 2]:
            stepper.goto(position)
            places[-1].append((stepper.position, stepper.reply, stepper.turns, stepper.tokens, stepper.done))
        stepper.close()
    assert places[0] == places[1]


def test_data_is_found_again_whether_it_is_in_memory_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "HELD", 10)
    held = Payloads({"first": b"12345678"})
    kept = [held.keep(data) for data in (b"abcdef", b"", b"abcdef", b"z" * 100)]
    assert kept[0] == kept[2]
    assert dict(held) == {"first": b"12345678", kept[0]: b"abcdef", kept[1]: b"", kept[3]: b"z" * 100}
    assert (held.size(kept[3]), held.size("other"), "other" in held) == (100, 0, False)
    with pytest.raises(KeyError):
        held["other"]


def test_nothing_is_left_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "HELD", 0)
    held = Payloads({"first": b"12345678"})
    file = held._spool._file
    assert os.fstat(file).st_nlink == 0
    del held
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(file)


def test_where_no_file_can_be_written_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "HELD", 4)
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    held = Payloads({"empty": b"", "first": b"1234"})
    assert dict(held) == {"empty": b"", "first": b"1234"}
    with pytest.raises(NoRoom, match=r"/nowhere, which cannot be written: No such file or directory; .* TMPDIR"):
        held.add("second", b"5")
    assert "second" not in held


class Entry(msgspec.Struct):
    number: int


class Head(msgspec.Struct):
    name: str
    entries: list[Entry]
    end: bool = True


def test_a_list_and_an_object_around_it_are_written_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "HELD", 10)
    listed = Listed(Entry)
    assert b"".join(json_parts(Head("none", []), "entries", ())) == b'{"name":"none","entries":[],"end":true}'
    for number in range(3):
        listed.append(Entry(number))
    assert list(listed) == listed[:] == [Entry(0), Entry(1), Entry(2)]
    assert (listed[-1], len(listed)) == (Entry(2), 3)
    told = b"".join(json_parts(Head("three", []), "entries", map(msgspec.json.encode, listed)))
    assert told == msgspec.json.encode(Head("three", [Entry(0), Entry(1), Entry(2)]))


def test_of_a_long_rollout_each_name_is_in_memory_once() -> None:
    log = recorded_run(1).log
    heads = Heads()
    heads._seen = payloads.HELD
    found = [heads.of(each) for each in log]
    assert [each.event.id for each in found] == [each.event.id for each in log]
    assert len({id(each.event.rolloutid) for each in found if each.event.rolloutid}) == 1
