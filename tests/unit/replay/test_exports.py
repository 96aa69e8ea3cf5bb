"""What `replay export` writes, form by form; into logs and out of them again is in tests/bus."""

import hashlib
import json
import re
import tracemalloc
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

from components.durable import Call
from contracts.codec import decode, encode
from contracts.events import CallError, Recorded
from contracts.responses import output_message
from contracts.rollouts import Adopted
from replay.bulk import Bulk
from replay.errors import CannotExport
from replay.exports.chrome import trace_events
from replay.exports.conversation import chat_line, items_line
from replay.exports.golden import Scrubber, golden_lines
from replay.exports.lines import event_lines
from replay.exports.otlp import traces
from replay.exports.page import html_page
from replay.facts import facts_of
from replay.file_source import FileSource, export_lines
from replay.source import load
from replay.trajectory import Trajectory
from tests.unit.replay.examples import (
    CALC,
    CALCULATOR,
    Delegating,
    calculator,
    edited,
    facts,
    recorded_run,
    refusing,
    task,
    trajectory_of,
)
from tests.unit.replay.recorder import Recorder, model_reply


def file(path: Path, events: list[Recorded], blobs: dict[str, bytes] | None = None) -> FileSource:
    path.write_bytes(b"".join(line + b"\n" for line in export_lines(events, blobs or {})))
    return FileSource([path])


async def exported(path: Path, source: FileSource, *rollouts: str) -> FileSource:
    chosen = rollouts or tuple(source.rollouts)
    lines = [line async for line in event_lines(source, chosen, frozenset({"r1"}))]
    return lines_file(path, lines)


def lines_file(path: Path, lines: list[bytes]) -> FileSource:
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return FileSource([path])


async def verdicts(source: FileSource) -> list[Any]:
    async with Bulk(source, await facts_of(source), None, []) as bulk:
        return [verdict async for verdict in bulk.verify(source.rollouts)]


def with_blob(recorded: Recorded, blobs: dict[str, bytes], data: bytes) -> Recorded:
    reference = f"sha256:{hashlib.sha256(data).hexdigest()}"
    blobs[reference] = data
    event = msgspec.structs.replace(recorded.event, data=msgspec.Raw(b"null"), dataref=reference)
    return Recorded(seq=recorded.seq, subject=recorded.subject, event=event, raw=encode(event))


async def test_r3_an_export_gives_the_verdicts_of_what_it_was_made_of_without_a_config(tmp_path: Path) -> None:
    log = recorded_run(3).log
    wrong = next(each for each in log if each.event.type == "tool.replied" and b'"output":"12"' in each.raw)
    whole = file(tmp_path / "log.jsonl", edited(log, wrong.seq, b'"output":"12"', b'"output":"13"'))
    again = await exported(tmp_path / "export.jsonl", whole)
    assert [verdict.verdict for verdict in await verdicts(again)] == ["differs", "same", "same"]
    plain = [msgspec.structs.replace(each, departure=None) for each in await verdicts(whole)]
    assert [msgspec.structs.replace(each, departure=None) for each in await verdicts(again)] == plain


async def test_r3_an_export_of_an_export_is_the_same_bytes(tmp_path: Path) -> None:
    blobs: dict[str, bytes] = {}
    log = recorded_run(2).log
    log[4] = with_blob(log[4], blobs, bytes(log[4].event.data))
    log[6] = with_blob(log[6], blobs, b'{\n "broken": "over lines"}')
    log[7] = with_blob(log[7], blobs, b'{\n "broken": "over lines"}')
    first = await exported(tmp_path / "1.jsonl", file(tmp_path / "log.jsonl", log, blobs))
    await exported(tmp_path / "2.jsonl", first)
    assert (tmp_path / "1.jsonl").read_bytes() == (tmp_path / "2.jsonl").read_bytes()
    for reference, data in blobs.items():
        assert await first.fetch_blob(reference) == data
    assert first.blobs == list(blobs)


async def test_one_rollout_of_many_is_exported_with_what_its_deployment_said(tmp_path: Path) -> None:
    whole = file(tmp_path / "log.jsonl", recorded_run(3).log)
    one = await exported(tmp_path / "one.jsonl", whole, "r1-00001-00")
    assert one.rollouts == ["r1-00001-00"]
    assert [verdict.verdict for verdict in await verdicts(one)] == ["same"]


async def test_r6_memory_does_not_grow_with_the_events_of_a_rollout(tmp_path: Path) -> None:
    """A rollout of 64 kB a line, once of 40 lines and once of 400: what is in memory is about one of them."""
    peaks = []
    for lines in (40, 400):
        path = tmp_path / f"{lines}.jsonl"
        event = next(each for each in recorded_run(1).log if each.event.type == "model.replied")
        raw = event.raw.replace(b'"id"', b'"padding":"' + b"x" * 65_536 + b'","id"', 1)
        request = next(each for each in recorded_run(1).log if each.event.type == "rollout.requested")
        path.write_bytes(b"\n".join([request.raw, *[raw] * lines]))
        source = FileSource([path])
        tracemalloc.start()
        async for line in event_lines(source, source.rollouts, frozenset()):
            del line
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


@pytest.mark.parametrize("secret", ['hunter2"quoted', "hunter2-p\u00e4ss-\U0001f511\\n/\n"])
async def test_golden_files_hold_no_secret_and_are_verified_to_be_the_same(tmp_path: Path, secret: str) -> None:
    recorder = Recorder(CALC, calculator)
    recorder.log = recorded_run(0).log
    recorder.rollout("r1-00000-00", "calc", task(f"Use {secret} and sk-{'a' * 24}: what are 5 + 7 and 5 * 7?"))
    source = file(tmp_path / "log.jsonl", recorder.log)
    scrubber = Scrubber([secret], Path("/nowhere"))
    lines = [line async for line in golden_lines(source, source.rollouts, scrubber)]
    (tmp_path / "golden.jsonl").write_bytes(b"\n".join(lines))
    written = (tmp_path / "golden.jsonl").read_bytes()
    assert b"hunter2" in (tmp_path / "log.jsonl").read_bytes()
    assert b"hunter2" not in written
    assert b"sk-aaaa" not in written
    assert scrubber.found >= 4
    assert [verdict.verdict for verdict in await verdicts(FileSource([tmp_path / "golden.jsonl"]))] == ["same"]


@pytest.mark.parametrize("secret", ['pa"ss\\word/12', "p\u00e4sswort-\U0001f511-\n\t", "998877665544", "7.654321"])
def test_a_secret_is_found_however_often_it_was_written_as_json(secret: str) -> None:
    """It is replaced by the same everywhere, and what was JSON still is."""
    scrubber = Scrubber([secret], Path("/nowhere"))
    cleaned = set()
    for ascii_only in (True, False):
        value: Any = secret
        for _ in range(4):
            raw = json.dumps({"in": value}, ensure_ascii=ascii_only)
            inner = json.loads(scrubber.clean(raw.encode()))
            while not isinstance(inner, str) or inner.startswith("{"):
                inner = inner["in"] if isinstance(inner, dict) else json.loads(inner)
            cleaned.add(inner)
            value = raw
    assert scrubber.found == 8
    (filling,) = cleaned
    assert len(filling) == len(secret)
    assert filling != secret


def test_a_secret_number_stays_a_number_and_no_other_number_changes() -> None:
    cleaned = Scrubber(["998877665544"], Path("/nowhere")).clean(
        b'{"a":998877665544,"b":1998877665544,"c":9988776655440}'
    )
    assert cleaned == b'{"a":111111111111,"b":1998877665544,"c":9988776655440}'


async def test_golden_files_have_blobs_in_their_events(tmp_path: Path) -> None:
    blobs: dict[str, bytes] = {}
    log = recorded_run(1).log
    place = next(number for number, each in enumerate(log) if each.event.type == "model.replied")
    raw = log[place].raw[:-1] + b',"colour":"green"}'
    log[place] = Recorded(seq=log[place].seq, subject=log[place].subject, event=decode(raw), raw=raw)
    data = bytes(log[place].event.data)
    log[place] = with_blob(log[place], blobs, data)
    source = file(tmp_path / "log.jsonl", log, blobs)
    lines = [line async for line in golden_lines(source, source.rollouts, Scrubber([], Path("/nowhere")))]
    assert not any(line.startswith(b'{"blob"') for line in lines)
    assert data in b"".join(lines)


def test_items_are_the_task_and_all_that_came_after() -> None:
    line = items_line(trajectory_of(recorded_run(1)))
    assert [item.get("type", item.get("role")) for item in line["items"]] == [
        "user",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "message",
    ]
    assert (line["reward"], line["outcome"], len(line["tools"])) == (1.0, "completed", 2)


def test_messages_are_the_same_conversation_for_chat_completions() -> None:
    line = chat_line(trajectory_of(recorded_run(1)))
    assert [message["role"] for message in line["messages"]] == ["user", "assistant", "tool", "tool", "assistant"]
    assert [call["function"]["name"] for call in line["messages"][1]["tool_calls"]] == ["add", "multiply"]
    assert line["messages"][-1]["content"] == "12 and 35"


def test_a_rollout_that_failed_is_told_up_to_its_last_answer() -> None:
    recorder = Recorder(CALC, refusing)
    recorder.rollout("r1-00000-00", "calc", task())
    line = chat_line(trajectory_of(recorder))
    assert [message["role"] for message in line["messages"]] == ["user"]
    assert (line["reward"], line["outcome"], line["error"]["kind"]) == (None, "failed", "unavailable")


def test_what_has_no_form_as_messages_is_named() -> None:
    def searching(call: Call) -> bytes | CallError:
        if call.type != "model.requested":
            return calculator(call)
        reply = msgspec.json.decode(model_reply(output_message("done", item_id="msg_1")))
        reply["output"].insert(0, {"type": "web_search_call", "id": "ws_1", "status": "completed"})
        return msgspec.json.encode(reply)

    recorder = Recorder(CALC, searching)
    recorder.rollout("r1-00000-00", "calc", task())
    with pytest.raises(CannotExport, match="web_search_call"):
        chat_line(trajectory_of(recorder))
    assert items_line(trajectory_of(recorder))["items"][1]["type"] == "web_search_call"


def attributes(span: dict[str, Any]) -> dict[str, Any]:
    return {each["key"]: next(iter(each["value"].values())) for each in span["attributes"]}


def spans_of(trajectory: Trajectory, *, content: bool = False) -> list[dict[str, Any]]:
    (resource,) = json.loads(b"".join(traces(trajectory, content=content)))["resourceSpans"]
    (scope,) = resource["scopeSpans"]
    spans: list[dict[str, Any]] = scope["spans"]
    return spans


def test_spans_make_one_trace_with_the_names_of_the_conventions() -> None:
    spans = spans_of(trajectory_of(recorded_run(1)))
    assert [span["name"] for span in spans] == [
        "invoke_agent calc",
        "chat policy",
        "execute_tool add",
        "execute_tool multiply",
        "chat policy",
        "verify calc_env",
    ]
    assert len({span["traceId"] for span in spans}) == 1
    assert len({span["spanId"] for span in spans}) == len(spans)
    assert all(len(span["traceId"]) == 32 and len(span["spanId"]) == 16 for span in spans)
    assert {span.get("parentSpanId") for span in spans[1:]} == {spans[0]["spanId"]}
    assert all(int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]) for span in spans)
    chat = attributes(spans[1])
    assert (chat["gen_ai.operation.name"], chat["gen_ai.usage.output_tokens"]) == ("chat", "5")
    assert "gen_ai.input.messages" not in chat
    tool = attributes(spans[2])
    assert (tool["gen_ai.tool.name"], tool["gen_ai.tool.call.id"]) == ("add", "c1")
    assert spans[5]["events"][-1]["name"] == "gen_ai.evaluation.result"


def test_spans_say_what_was_said_only_where_that_is_asked_for() -> None:
    spans = spans_of(trajectory_of(recorded_run(1)), content=True)
    assert "5 + 7" in attributes(spans[1])["gen_ai.input.messages"]
    assert attributes(spans[2])["gen_ai.tool.call.result"] == "12"


def test_a_failed_call_is_an_error_of_its_span_and_of_the_trace() -> None:
    recorder = Recorder(CALC, refusing)
    recorder.rollout("r1-00000-00", "calc", task())
    spans = spans_of(trajectory_of(recorder))
    assert [(span["status"]["code"], attributes(span)["error.type"]) for span in spans] == [(2, "unavailable")] * 2


def lost_and_adopted(workers_clock: float) -> Recorder:
    """A rollout that two workers took over, the later one with a clock that is so many seconds ahead."""
    recorder = Recorder(CALC, calculator)
    recorder.deployment({"calc": "simple_agent"}, {"calc": ""})
    recorder.rollout("r1-00000-00", "calc", task(), stop_after=1)
    for epoch, ahead in ((1, 0.0), (2, workers_clock)):
        adopted = msgspec.json.encode(Adopted(epoch=epoch, worker=f"calc-{epoch}-ccc"))
        subject = f"jetgym.0.rollout.adopted.r1.r1-00000-00.{epoch}"
        recorder.write("rollout.adopted", subject, adopted, rolloutid="r1-00000-00", callkey="run")
        last = recorder.log[-1]
        event = msgspec.structs.replace(last.event, time=last.event.time + timedelta(seconds=ahead))
        recorder.log[-1] = Recorded(seq=last.seq, subject=last.subject, event=event, raw=encode(event))
    return recorder


@pytest.mark.parametrize(
    "recorder", [recorded_run(1), lost_and_adopted(0), lost_and_adopted(-9)], ids=["parallel", "adopted", "clocks"]
)
def test_slices_of_one_thread_of_a_chrome_trace_never_cross_and_all_have_names(recorder: Recorder) -> None:
    """What begins in a slice ends in it, else the viewer drops it; it reads whole microseconds exactly."""
    for place, recorded in enumerate(recorder.log):  # microseconds that no float of seconds or sum of them has
        event = msgspec.structs.replace(
            recorded.event,
            time=recorded.event.time + timedelta(microseconds=place * 7),
            elapsed=recorded.event.elapsed * 0.7333333,
        )
        recorder.log[place] = Recorded(seq=recorded.seq, subject=recorded.subject, event=event, raw=encode(event))
    trajectory = trajectory_of(recorder)
    told = trace_events(trajectory, facts(recorder), 1, trajectory.started - timedelta(seconds=1))
    events = json.loads(msgspec.json.encode(told))
    slices = [event for event in events if event["ph"] == "X"]
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert {"models policy", "tools calc_env 1", "tools calc_env 2"} <= names
    assert all(event["name"] for event in events)
    moments = [event[part] for event in slices for part in ("ts", "dur")]
    assert all(isinstance(moment, int) and 0 <= moment < 3600 * 10**6 for moment in moments)
    assert min(event["ts"] for event in slices) == 10**6
    for thread in {event["tid"] for event in slices}:
        around: list[int] = []
        for begin, end in sorted(
            ((event["ts"], event["ts"] + event["dur"]) for event in slices if event["tid"] == thread),
            key=lambda span: (span[0], -span[1]),
        ):
            while around and around[-1] <= begin:
                around.pop()
            assert not around or end <= around[-1]
            around.append(end)


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_page_shows_what_was_written_and_runs_none_of_it() -> None:
    evil = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m"

    def writing(call: Call) -> bytes | CallError:
        if call.type == "model.requested":
            return model_reply(output_message(evil, item_id="msg_1"))
        return calculator(call)

    recorder = Recorder(CALC, writing)
    recorder.rollout("r1-00000-00", "calc", task(evil))
    page = Page()
    page.feed(html := "".join(html_page(trajectory_of(recorder), facts(recorder))))
    assert page.tags.isdisjoint({"script", "img", "link", "iframe", "a", "form"})
    assert not any(name.startswith("on") or name in ("src", "href") for name in page.attributes)
    assert page.text.count("<script>alert(1)</script>") == 2
    assert "\x1b" not in html
    assert "default-src 'none'" in html


async def test_a_page_tells_every_call(tmp_path: Path) -> None:
    recorder = recorded_run(1)
    source = file(tmp_path / "log.jsonl", recorder.log)
    html = "".join(html_page(await load(source, "r1-00000-00"), await facts_of(source)))
    for key in ("m_0", "m1_0", "m2_0", "m_1", "m_2"):
        assert f'id="{key}"' in html
    assert "reward 1" in html


def test_a_page_tells_what_a_called_agent_was_handed_and_how_long_it_took() -> None:
    """Its calls say when it worked and when they waited; of itself, nobody measures it."""
    recorder = Recorder({**CALC, "delegating": (Delegating, CALCULATOR)}, calculator)
    recorder.rollout("r1-00000-00", "delegating", task())
    html = "".join(html_page(trajectory_of(recorder), facts(recorder)))
    told = r"<h2>agent calc <small>m_0: at 333 ms, took [^,]+ by [^,]+</h2>.*?<pre>the rollout&#x27;s own</pre>"
    assert re.search(told, html)


def test_a_page_says_that_the_reward_was_revised() -> None:
    recorder = recorded_run(1)
    recorder.write(
        "rollout.revised",
        recorder.subjects.revised("r1", "r1-00000-00", 1),
        b'{"reward": 0.25}',
        rolloutid="r1-00000-00",
    )
    html = "".join(html_page(trajectory_of(recorder), facts(recorder)))
    assert "completed, reward 0.25; 1 = right 0.75 + short 0.25 before it was revised 1 time" in html
