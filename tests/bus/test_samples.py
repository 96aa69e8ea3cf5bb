"""Tokens that lie in a log, or in a file that was written from it, come out as samples."""

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bus import Bus
from bus.catalog import stored_blobs
from bus.trim import delete_pieces
from contracts.errors import OtherTokenizer, TwoPayloads
from contracts.ids import ROOT_CALL
from contracts.rollouts import Revised, RolloutRequest, RolloutResult, RolloutStats, Timings, Usage
from contracts.tokens import Capture
from orchestrator.archive import archive, new_file
from orchestrator.errors import UsageError
from orchestrator.export import completed, export_samples
from orchestrator.histories import Readable, ended_history
from orchestrator.results import read_ending
from orchestrator.sample_files import writer
from orchestrator.samples import read_samples
from replay.errors import CannotExport
from replay.exports.samples import sample_lines
from replay.file_source import FileSource, export_lines
from replay.log_source import LogSource
from replay.source import load, with_captures
from tests.bus.speaking import model_call
from tests.unit.contracts.conversations import capture

ROLLOUT = "run-00000-00"
MANY = 20_000
"""Tokens that do not fit into an event."""


async def converse(bus: Bus, rollout: str = ROLLOUT, *, prompt: int = MANY, flaw: str = "") -> None:
    """Two turns, of which the first has a capture that is a claim check, if it is long; with a flaw none has tokens."""
    task = RolloutRequest(task=msgspec.Raw(b"{}"), agent="solver", run_id="run")
    await bus.publish(
        bus.event(
            "rollout.requested",
            bus.subjects.request("agents", "solver", 1, rollout, ROOT_CALL),
            msgspec.json.encode(task),
            rolloutid=rollout,
            callkey=ROOT_CALL,
            replyto=bus.subjects.ended("run", rollout),
        )
    )
    long = capture(range(prompt), [7, 8])
    short = capture([5], [6], cited=("m_0", prompt + 2))
    if flaw:
        long = short = Capture(flaw=flaw)
    for key, items, said in (("m_0", ["q"], long), ("m_1", ["q", "a", "t"], short)):
        await model_call(bus, rollout, key, items, ["a"], captured=said)


async def test_captures_are_read_from_a_log_and_from_files_written_from_it(bus: Bus, tmp_path: Path) -> None:
    await converse(bus)
    source = LogSource(bus, "log")
    trajectory = await load(source, ROLLOUT)
    (reference,) = (each.event.captureref for each in trajectory.events if each.event.captureref)
    assert reference not in trajectory.blobs  # nothing but samples and exports pays for it
    with new_file(tmp_path / "archive.jsonl") as file:
        await archive(bus, "run", file)
    lines = export_lines(trajectory.events, (await with_captures(source, trajectory)).blobs)
    (tmp_path / "raw.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    files = [FileSource([tmp_path / name]) for name in ("archive.jsonl", "raw.jsonl")]
    logs: list[Readable] = [bus, source, *files]
    for log in logs:
        (sample,) = (await read_samples(log, ROLLOUT, tokenizer="tok", template="tem")).samples
        assert sample.tokens.tolist() == [*range(MANY), 7, 8, 5, 6]
        assert sample.mask.nonzero()[0].tolist() == [MANY, MANY + 1, MANY + 3]
        with pytest.raises(OtherTokenizer, match=ROLLOUT):
            await read_samples(log, ROLLOUT, tokenizer="other")


async def test_a_rollout_that_is_not_there_has_no_samples(bus: Bus) -> None:
    found = await read_samples(bus, "nobody")
    assert (found.samples, found.breaks, found.tokenless) == ((), (), ())


async def test_the_page_reads_a_rollout_as_it_says(bus: Bus, capsys: pytest.CaptureFixture[str]) -> None:
    """docs/samples.md: its snippet, as it stands there."""
    await converse(bus)
    page = (Path(__file__).parents[2] / "docs" / "samples.md").read_text()
    (snippet,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(snippet, names)
    assert (await names["look"](bus, ROLLOUT)).trained == 3
    assert capsys.readouterr().out == f"('m_0', 'm_1') {MANY + 4} 3 False\n{{}} []\n"


async def test_a_capture_that_the_log_has_lost_costs_its_calls_the_tokens_and_nothing_else(
    bus: Bus, tmp_path: Path
) -> None:
    """T10, T16: a power cut may take it alone, and a trainer would end at it each time that it is started.

    The line keeps response and reward, and the run is exported.
    """
    response = msgspec.Raw(b'{"id":"r","output":["a"]}')
    stats = RolloutStats(usage=Usage(), timings=Timings(queue_s=0.0, total_s=0.0), captured=2)
    for name, prompt in ((ROLLOUT, MANY), ("run-00001-00", 3)):
        await converse(bus, name, prompt=prompt)
        result = msgspec.json.encode(RolloutResult(response=response, reward=1.0, stats=stats))
        ended = bus.event("rollout.completed", bus.subjects.ended("run", name), result, rolloutid=name)
        await bus.publish(ended)
    blobs = await stored_blobs(bus)
    await delete_pieces(bus, [seq for blob in blobs.values() for seq in blob.places])
    found = await read_samples(bus, ROLLOUT)
    assert (found.samples, found.trainable) == ((), False)
    assert [(call.call, call.why) for call in found.refused] == [
        ("m_0", "its capture cannot be read: Input data was truncated"),
        ("m_1", "its prompt cites call 'm_0', whose tokens are not known"),
    ]
    assert (await read_samples(bus, ROLLOUT, models=["another"])).tokenless == ()
    recorded = await bus.last(bus.subjects.ended("run", ROLLOUT))
    assert recorded is not None
    ending = await read_ending(bus, recorded.event)
    assert isinstance(ending, RolloutResult)
    assert (ending.reward, msgspec.json.decode(ending.response)) == (1.0, msgspec.json.decode(response))
    rollouts, others = await completed(bus, "run")
    with writer(tmp_path, "jsonl") as into:
        told = await export_samples(bus, "run", rollouts, into)
    assert (told.samples, told.tokenless_rollouts, told.refused_calls, others) == (1, 1, 2, 0)


async def test_what_comes_after_a_rollouts_end_counts_for_nothing(bus: Bus) -> None:
    """A model call that nobody waits for may be answered after the end: lines and samples stay what they were."""
    await converse(bus)
    ended = bus.event("rollout.failed", bus.subjects.ended("run", ROLLOUT), b"{}", rolloutid=ROLLOUT)

    async def end() -> None:
        await asyncio.sleep(0.2)  # so that it is not there at the first look
        await bus.publish(ended)

    async with asyncio.TaskGroup() as group:
        group.create_task(end())
        before = await ended_history(bus, ROLLOUT)
    assert before[-1].event.id == ended.id
    data = msgspec.json.encode({"output": ["late"]})
    late = bus.event("model.replied", bus.subjects.reply("x", ROLLOUT, "m_9"), data, rolloutid=ROLLOUT, callkey="m_9")
    await bus.publish(late)
    assert [each.raw for each in await ended_history(bus, ROLLOUT)] == [each.raw for each in before]
    assert (await read_samples(bus, ROLLOUT, ended=True)).tokenless == ()
    assert [each.call for each in (await read_samples(bus, ROLLOUT)).tokenless] == ["m_9"]


async def test_a_line_whose_events_contradict_each_other_has_no_tokens_and_is_written(bus: Bus) -> None:
    """T11: that is an error of its samples, and no reason to end the run."""
    await converse(bus)
    data = msgspec.json.encode({"output": ["another"]})
    reply = bus.subjects.reply("another", ROLLOUT, "m_1")
    await bus.publish(bus.event("model.replied", reply, data, rolloutid=ROLLOUT, callkey="m_1"))
    stats = RolloutStats(usage=Usage(), timings=Timings(queue_s=0, total_s=0), captured=2)
    response = msgspec.Raw(msgspec.json.encode({"id": "r", "output": ["a"]}))
    result = msgspec.json.encode(RolloutResult(response=response, reward=1.0, stats=stats))
    ended = bus.event("rollout.completed", bus.subjects.ended("run", ROLLOUT), result, rolloutid=ROLLOUT)
    await bus.publish(ended)
    with pytest.raises(TwoPayloads, match="m_1"):
        await read_samples(bus, ROLLOUT, ended=True)
    found = await read_ending(bus, ended)
    assert isinstance(found, RolloutResult)
    assert found.response == response


def completion(reward: float) -> bytes:
    stats = RolloutStats(usage=Usage(), timings=Timings(queue_s=0, total_s=0), models=("policy",), captured=2)
    response = msgspec.Raw(msgspec.json.encode({"id": "r", "output": ["a"]}))
    extra = {"reward_components": msgspec.Raw(b'{"right": %g}' % reward)}
    return msgspec.json.encode(RolloutResult(response=response, reward=reward, stats=stats, extra=extra))


async def test_samples_have_the_latest_reward_and_its_components_whoever_exports_them(bus: Bus, tmp_path: Path) -> None:
    """`jetgym export samples` and `replay export --format samples` give the same; what is in no row is not counted."""
    await converse(bus)
    subjects = bus.subjects
    await bus.publish(
        bus.event("rollout.completed", subjects.ended("run", ROLLOUT), completion(1.0), rolloutid=ROLLOUT)
    )
    for number, reward in enumerate((0.25, 0.5), start=1):
        said = Revised(reward=reward, extra={"reward_components": msgspec.Raw(b'{"right": %g}' % reward)})
        data, subject = msgspec.json.encode(said), subjects.revised("run", ROLLOUT, number)
        await bus.publish(bus.event("rollout.revised", subject, data, rolloutid=ROLLOUT))
    rollouts, others = await completed(bus, "run")
    with writer(tmp_path, "jsonl") as into:
        told = await export_samples(bus, "run", rollouts, into)
    (line,) = map(msgspec.json.decode, into.files[0].read_bytes().splitlines())
    source = LogSource(bus, "log")
    (other,) = map(msgspec.json.decode, sample_lines(await with_captures(source, await load(source, ROLLOUT))))
    assert line == other
    assert (line["reward"], line["reward_components"]) == (0.5, '{"right": 0.5}')
    assert (told.revised, told.samples, others) == (1, 1, 0)
    await converse(bus, "run-00001-00", prompt=5)
    data, subject = completion(1.0), subjects.ended("run", "run-00001-00")
    await bus.publish(bus.event("rollout.completed", subject, data, rolloutid="run-00001-00"))
    rollouts, _ = await completed(bus, "run")
    with writer(tmp_path, "jsonl") as into:
        told = await export_samples(bus, "run", rollouts, into, pack=100)
    assert told.too_long == (f"{ROLLOUT}/0",)
    assert (told.rollouts, told.samples, told.rows, told.tokens, told.trained, told.revised) == (1, 1, 1, 9, 3, 0)


async def test_an_export_of_which_all_tokens_were_refused_says_why(bus: Bus, tmp_path: Path) -> None:
    await converse(bus, flaw="a log-probability is NaN or infinite")
    ended = bus.event("rollout.completed", bus.subjects.ended("run", ROLLOUT), completion(1.0), rolloutid=ROLLOUT)
    await bus.publish(ended)
    rollouts, _ = await completed(bus, "run")
    refused = "2 model calls were refused, 2 of them since: a log-probability is NaN or infinite"
    with writer(tmp_path, "jsonl") as into, pytest.raises(UsageError, match=refused):
        await export_samples(bus, "run", rollouts, into)
    source = LogSource(bus, "log")
    with pytest.raises(CannotExport, match="no token to train on: a log-probability is NaN"):
        list(sample_lines(await with_captures(source, await load(source, ROLLOUT))))
