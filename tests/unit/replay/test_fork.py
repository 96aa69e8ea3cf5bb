"""What a fork shares with its parent, and what an agent's code does after it."""

import random
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from components.agents.base import Agent, AgentConfig
from components.agents.simple_agent.app import SimpleAgent
from components.durable import Call
from contracts.codec import encode
from contracts.events import CallError, Recorded
from contracts.responses import output_message
from contracts.rollouts import RolloutResult
from replay.bulk import Bulk
from replay.commands.whatif import draw_whatif
from replay.edits import Edit
from replay.engine import departure_of, upcoming
from replay.errors import Misused, UnknownName
from replay.exports.otlp import traces
from replay.facts import Facts, facts_of
from replay.file_source import FileSource, export_lines
from replay.fork import Changes, Plan
from replay.header import header_lines
from replay.page import seconds
from replay.payloads import Heads
from replay.points import point
from replay.source import load
from replay.trajectory import Trajectory
from replay.whatif import whatif
from tests.unit.replay.examples import (
    CALC,
    CALCULATOR,
    Delegating,
    Dicing,
    Patient,
    Saving,
    calculator,
    recorded_run,
    task,
    trajectory_of,
)
from tests.unit.replay.recorder import SUBJECTS, Recorder, model_reply

CONFIG = AgentConfig(model="policy", resources="calc_env")
AGENTS: dict[str, tuple[type[Agent], AgentConfig]] = {
    **CALC,
    "patient": (Patient, CONFIG),
    "dicing": (Dicing, CONFIG),
    "saving": (Saving, CONFIG),
    "delegating": (Delegating, CONFIG),
}


def recorded(agent: str, seed: int = 0) -> Trajectory:
    recorder = Recorder(AGENTS, calculator)
    recorder.rollout("r1-00000-00", agent, task(), order=random.Random(seed))
    return trajectory_of(recorder)


NOTHING = Edit()
MODEL_REPLY = model_reply(output_message("12", item_id="msg_1"))


def plan(parent: Trajectory, at: str, edit: Edit = NOTHING, **changes: object) -> Plan:
    return Plan(parent, point(parent, at), Changes(edit=edit, **changes))  # type: ignore[arg-type]


def ahead(planned: Plan, agent: str) -> tuple[list[str], RolloutResult | None]:
    fork = planned.trajectory()
    found = upcoming(fork, next(fork.executions()), *AGENTS[agent])
    assert found.departure is None, found.departure
    for call in found.calls:
        recorded = planned.parent.calls.get(call.key)
        assert recorded is None or recorded.requested.event.data == msgspec.Raw(call.data)
    return [call.key for call in found.calls], found.result


@pytest.mark.parametrize("agent", ["calc", "patient", "dicing", "saving", "delegating"])
def test_after_any_prefix_the_code_asks_for_what_is_recorded_next(agent: str) -> None:
    """R2, offline: at every event the code makes exactly the recorded calls that had no answer yet."""
    parent = recorded(agent)
    for event in parent.events:
        planned = plan(parent, str(event.seq))
        keys, result = ahead(planned, agent)
        shared = {call.key for call in planned.shared}
        if event is parent.ended:
            assert (keys, result is not None) == ([], True)
            continue
        assert not shared & set(keys)
        first = next(
            key for key, call in parent.calls.items() if key not in shared and call.replied and "--" not in key
        )
        assert first in keys


def test_a_fork_at_the_end_comes_to_the_recorded_result() -> None:
    """R2."""
    parent = recorded("calc")
    _, result = ahead(plan(parent, "end"), "calc")
    assert isinstance(parent.outcome, RolloutResult)
    assert result is not None
    assert result.reward == parent.outcome.reward


def test_a_point_is_named_by_the_number_of_an_event_as_show_prints_it() -> None:
    parent = recorded("calc")
    for event in parent.events:
        assert point(parent, f"#{event.seq}") == point(parent, str(event.seq))


def test_a_fork_at_0_shares_nothing() -> None:
    """R2."""
    parent = recorded("calc")
    planned = plan(parent, "0")
    assert planned.shared == []
    (event,) = list(planned.trajectory().events)
    assert event.event.type == "rollout.requested"


def test_what_is_shared_stands_under_the_new_id_alone_and_no_pool_takes_it() -> None:
    """R1."""
    parent = recorded("delegating")
    before = [event.raw for event in parent.events]
    planned = plan(parent, "end")
    request = planned.request("f1-00000-00", "f1")
    assert (request.parent, request.run_id) == (parent.rollout_id, "f1")
    recorder = Recorder(AGENTS, calculator)
    events = list(planned.events(request, "f1-00000-00", recorder.subjects, "writer", parent.started))
    assert all(".f1-00000-00" in event.subject and parent.rollout_id not in event.subject for event in events)
    assert {event.rolloutid for event in events} == {"f1-00000-00"}
    *shared, last = events
    assert last.type == "rollout.requested"
    assert {event.subject.split(".")[4] for event in shared if ".request." in event.subject} == {"_"}
    assert not {event.id for event in events} & {event.event.id for event in parent.events}
    assert len({event.id for event in events}) == len(events)
    assert [event.raw for event in parent.events] == before


def test_a_fork_of_a_fork_and_its_nested_agents_are_what_the_code_does() -> None:
    parent = recorded("delegating")
    for event in parent.events:
        fork = plan(parent, str(event.seq)).trajectory()
        again = plan(fork, "end").trajectory()
        for run in again.executions():
            agent, config = AGENTS[run.agent]
            assert departure_of(again, run, agent, config) is None


def gone_on(planned: Plan, name: str, later: timedelta) -> Trajectory:
    """The fork as it stands in a log when it came to what its parent came to, so much later than that."""
    parent, heads = planned.parent, Heads()
    run = name.partition("-")[0]
    events = list(planned.events(planned.request(name, run), name, SUBJECTS, "writer", parent.started + later))
    shared = {call.key for call in planned.shared}
    rest = [each.event for each in parent.events if each.event.callkey not in shared and each is not parent.requested]
    for event in rest:
        subject = event.subject.replace(parent.rollout_id, name).replace(parent.request.run_id, run)
        moved = {"rolloutid": name, "subject": subject, "traceparent": events[-1].traceparent}
        events.append(structs.replace(event, id=f"{name}-{event.id}", time=event.time + later, **moved))
    recorded = [
        heads.of(Recorded(seq=seq, subject=event.subject, event=event, raw=encode(event)))
        for seq, event in enumerate(events, start=1)
    ]
    return Trajectory(name, recorded, heads.payloads)


def test_a_fork_of_a_fork_took_as_long_as_if_each_had_gone_on_where_its_parent_was() -> None:
    """However long after its parent each was made; and in a trace nothing lies outside of its root."""
    parent = recorded("calc")
    assert parent.ended is not None
    took = parent.offset(parent.ended)
    fork = gone_on(plan(parent, "turn:2"), "f1-00000-00", timedelta(days=1))
    again = gone_on(plan(fork, "m_2"), "f2-00000-00", timedelta(days=1))
    for each in (fork, again):
        offsets = [each.offset(recorded) for recorded in each.events]
        assert offsets == sorted(offsets)
        assert each.ended is not None
        assert took <= each.offset(each.ended) <= 2 * took
        assert (
            f"{seconds(each.offset(each.requested))} of them its parent's"
            in dict(header_lines(each, Facts(())))["time"]
        )
        trace = msgspec.json.decode(b"".join(traces(each)))
        root, *spans = trace["resourceSpans"][0]["scopeSpans"][0]["spans"]
        begun, over = (int(root[name]) for name in ("startTimeUnixNano", "endTimeUnixNano"))
        assert (over - begun) / 1e9 == pytest.approx(each.offset(each.ended), abs=1e-3)
        for span in spans:
            assert begun <= int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]) <= over


@pytest.mark.parametrize("agent", ["dicing", "saving"])
def test_randomness_after_the_point_is_the_forks_own_and_before_it_the_parents(agent: str) -> None:
    parent = recorded(agent)
    one, other = (
        plan(parent, "turn:2", seed=seed).trajectory() if seed else plan(parent, "turn:2").trajectory()
        for seed in ("", "7")
    )
    same, another = (upcoming(fork, next(fork.executions()), *AGENTS[agent]) for fork in (one, other))
    assert same.departure is another.departure is None
    assert same.calls[0].data != another.calls[0].data


def test_an_edited_reply_is_what_the_code_goes_on_with() -> None:
    parent = recorded("calc")
    tools = [call for call in parent.calls.values() if call.what == "tool"]
    last = max(tools, key=lambda call: call.replied.seq if call.replied else 0)
    planned = plan(parent, last.key, Edit(fields=("output=47",)))
    fork = planned.trajectory()
    found = upcoming(fork, next(fork.executions()), SimpleAgent, CALCULATOR)
    (call,) = found.calls
    assert b"47" in fork.whole(call.what, call.data, "")


def test_a_models_text_can_be_set_by_name_and_ends_the_conversation() -> None:
    parent = recorded("calc")
    planned = plan(parent, "turn:2", Edit(fields=("text=It is 12.",)))
    fork = planned.trajectory()
    found = upcoming(fork, next(fork.executions()), SimpleAgent, CALCULATOR)
    assert [call.what for call in found.calls] == ["verify"]
    assert b"It is 12." in fork.whole("verify", found.calls[0].data, "")


def test_a_dropped_call_fails() -> None:
    parent = recorded("calc")
    fork = plan(parent, "turn:1", Edit(drop=True)).trajectory()
    found = upcoming(fork, next(fork.executions()), SimpleAgent, CALCULATOR)
    assert isinstance(found.error, CallError)
    assert found.error.kind == "unavailable"


def test_an_edit_at_0_is_one_of_the_task() -> None:
    parent = recorded("calc")
    request = plan(parent, "0", Edit(fields=("responses_create_params.temperature=0.5", "answer=7"))).request("f", "f1")
    assert msgspec.json.decode(request.task)["responses_create_params"]["temperature"] == 0.5
    assert msgspec.json.decode(request.task)["answer"] == 7


def test_calls_can_go_to_another_model_from_the_point_on() -> None:
    parent = recorded("calc")
    fork = plan(parent, "turn:2", routed={"policy": "judge"}).trajectory()
    found = upcoming(fork, next(fork.executions()), SimpleAgent, CALCULATOR)
    assert found.departure is None
    assert fork.request.fork is not None
    assert fork.request.fork.routed == {"policy": "judge"}
    assert {call.instance for call in fork.calls.values() if call.what == "model"} == {"policy"}


async def test_whatif_tells_the_model_that_is_called_and_the_one_that_it_takes_the_place_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log.jsonl").write_bytes(b"\n".join(export_lines(recorded_run(1).log, {})))
    source = FileSource([tmp_path / "log.jsonl"])
    parent = await load(source, "r1-00000-00")
    async with Bulk(source, await facts_of(source), None, []) as bulk:
        found = await whatif(plan(parent, "turn:2", routed={"policy": "judge"}), bulk)
        same = await whatif(plan(parent, "turn:2"), bulk)
    assert [(call.instance, call.instead_of, call.compared) for call in found.calls] == [
        ("judge", "model policy", "differs")
    ]
    assert [(call.instance, call.instead_of, call.compared) for call in same.calls] == [("policy", "", "same")]
    draw_whatif(found)
    assert "model judge  instead of model policy, which is recorded" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("at", "edit", "says"),
    [
        ("turn:9", Edit(), "has the turns 1 to 2"),
        ("99", Edit(), "no request or reply"),
        ("0", Edit(drop=True), "the task"),
        ("end", Edit(drop=True), "after the last event"),
        ("turn:1", Edit(drop=True, fields=("a=1",)), "one of"),
        ("turn:1", Edit(fields=("nothing.here=1",)), "there is no 'nothing'"),
        ("turn:1", Edit(fields=("output.9.x=1",)), "items 0 to 1"),
        ("turn:1", Edit(fields=("a",)), "PATH=VALUE"),
        ("turn:1", Edit(reply=b"{"), "no JSON"),
        ("m1_0", Edit(fields=("text=a",)), "no model's reply"),
        ("turn:1", Edit(reply=b'{"output":"8"}'), "for call m_0: that is not a model's reply: id: Field required"),
        ("turn:1", Edit(fields=("output=5",)), "--edit output=5: that is not a model's reply: output: "),
        ("m1_0", Edit(reply=MODEL_REPLY), "that is not a tool's output: it has no id, object"),
        ("m1_0", Edit(reply=b"47"), "that is not a tool's output: output"),
        ("m1_0", Edit(reply=b'{"reward":1}'), "that is not a tool's output: .*missing required field `output`"),
        ("m_2", Edit(fields=("reward=much",)), "--edit reward=much: that is not a verdict"),
        ("0", Edit(fields=("responses_create_params.input=5",)), "that is no task: input"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_there_is(at: str, edit: Edit, says: str) -> None:
    parent = trajectory_of(recorded_run(1))
    with pytest.raises(Misused, match=says):
        plan(parent, at, edit).trajectory()


@pytest.mark.parametrize(
    ("at", "reply"), [("turn:1", MODEL_REPLY), ("m1_0", b'"47"'), ("m1_0", b'{"output":[]}'), ("m_2", b'{"reward":0}')]
)
def test_a_reply_of_its_kind_takes_the_place_of_the_recorded_one(at: str, reply: bytes) -> None:
    found = plan(trajectory_of(recorded_run(1)), at, Edit(reply=reply)).trajectory()
    assert reply in b"".join(event.raw for event in found.events)


def test_turns_are_those_of_the_rollouts_own_agent_and_the_others_are_named_by_their_keys() -> None:
    parent = recorded("delegating")
    assert point(parent, "turn:1").call is parent.calls["m_1"]
    assert point(parent, "turn:2", "m_0--").call is parent.calls["m_0--m_1"]
    with pytest.raises(Misused, match=r"has the turn 1 only; agents that it called made .*: m_0--m_0, m_0--m_1"):
        point(parent, "turn:2")
    del parent.calls["m_1"]
    with pytest.raises(Misused, match="has no turn of its own"):
        point(parent, "turn:1")


def test_a_call_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(UnknownName, match="m_0"):
        plan(trajectory_of(recorded_run(1)), "m_9")


def test_captures_go_along_where_they_were_fetched_and_code_is_tried_without_them() -> None:
    parent = recorded("calc")
    seqs = {call.replied.seq for call in parent.calls.values() if call.what == "model" and call.replied is not None}
    parent.events = [
        structs.replace(each, event=structs.replace(each.event, captureref="sha256:aa")) if each.seq in seqs else each
        for each in parent.events
    ]
    for captures in ({}, {"sha256:aa": b'{"policy":[1,2]}'}):
        planned = plan(Trajectory(parent.rollout_id, parent.events, captures), "end")
        copied = [
            bytes(each.event.capture) for each in planned.trajectory().events if each.event.type == "model.replied"
        ]
        assert copied == [captures.get("sha256:aa", b"null")] * len(seqs)
        assert ahead(planned, "calc")[1] is not None


@pytest.mark.parametrize("agent", ["calc", "patient", "delegating"])
def test_at_the_end_of_a_rollout_that_has_not_ended_what_is_open_is_asked_again(agent: str) -> None:
    """Nobody would answer what is copied: the fork would wait for ever."""
    for replies in range(4):
        recorder = Recorder(AGENTS, calculator)
        recorder.rollout("r1-00000-00", agent, task(), stop_after=replies)
        parent = trajectory_of(recorder)
        if parent.ended is not None:
            continue
        planned = plan(parent, "end")
        assert all(call.replied is not None for call in planned.shared)
        opened = {key: call.what for key, call in parent.calls.items() if call.replied is None and "--" not in key}
        keys, result = ahead(planned, agent)
        assert result is None
        assert {key for key, what in opened.items() if what != "timer"} <= set(keys) <= set(opened)
        assert keys, "its code waits for something; it may have given up a timer"


async def test_whatif_at_the_end_of_a_rollout_that_has_not_ended_tells_what_it_waits_for(tmp_path: Path) -> None:
    recorder = recorded_run(0)
    recorder.rollout("r1-00000-00", "calc", task(), stop_after=1)
    (tmp_path / "log.jsonl").write_bytes(b"\n".join(export_lines(recorder.log, {})))
    source = FileSource([tmp_path / "log.jsonl"])
    parent = await load(source, "r1-00000-00")
    async with Bulk(source, await facts_of(source), None, []) as bulk:
        found = await whatif(plan(parent, "end"), bulk)
    assert found.verdict == "same"
    opened = [key for key, call in parent.calls.items() if call.replied is None]
    assert [(call.key, call.compared) for call in found.calls] == [(key, "same") for key in opened]


def test_text_is_what_a_model_said_and_nothing_in_a_tools_list_of_parts() -> None:
    """A message of a model does not belong into a tool's output."""

    def in_parts(call: Call) -> bytes | CallError:
        if call.type == "tool.requested":
            return b'{"output":[{"type":"input_text","text":"12"}]}'
        return calculator(call)

    recorder = Recorder(AGENTS, in_parts)
    recorder.rollout("r1-00000-00", "calc", task())
    with pytest.raises(Misused, match="this is no model's reply; it holds output"):
        plan(trajectory_of(recorder), "m1_0", Edit(fields=("text=13",))).trajectory()
    fork = plan(trajectory_of(recorder), "m1_0", Edit(fields=("output.0.text=13",))).trajectory()
    assert any(b'"text":"13"' in event.raw for event in fork.events)
