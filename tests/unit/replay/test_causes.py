"""`replay why`: the chain of causes."""

import msgspec
import pytest

from components.agents.base import AgentConfig
from contracts.codec import decode, encode
from contracts.deployments import WorkerStarted
from contracts.events import Recorded
from replay.causes import chain, event_named
from replay.errors import UnknownName
from replay.facts import Facts
from tests.unit.replay.examples import CALC, Delegating, calculator, facts, recorded_run, task, trajectory_of
from tests.unit.replay.recorder import Recorder


def test_the_end_is_led_back_to_the_task_through_every_turn() -> None:
    recorder = recorded_run(1)
    trajectory = trajectory_of(recorder)
    links = chain(trajectory, event_named(trajectory, "end"), facts(recorder))
    assert [link.type for link in links][:3] == ["rollout.completed", "verify.replied", "verify.requested"]
    assert [link.type for link in links][-3:] == ["model.replied", "model.requested", "rollout.requested"]
    assert links[-1].why == "task 0 of run r1, rollout 0 of its group"
    assert [link.seq for link in links] == sorted((link.seq for link in links), reverse=True)


def test_a_reply_says_what_it_waited_and_what_was_worked_on_it() -> None:
    trajectory = trajectory_of(recorder := recorded_run(1))
    (link, *_) = chain(trajectory, event_named(trajectory, "m_2"), facts(recorder))
    assert (link.type, link.worker, link.worked_s) == ("verify.replied", "calc_env-0-bbb", 0.25)
    assert link.waited_s == pytest.approx(1 / 3 - 0.25, abs=1e-5)


def test_the_reply_of_an_agent_that_was_called_goes_through_what_it_did() -> None:
    agents = {**CALC, "boss": (Delegating, AgentConfig(model="policy"))}
    recorder = Recorder(agents, calculator)
    recorder.rollout("r1-00000-00", "boss", task())
    trajectory = trajectory_of(recorder)
    links = chain(trajectory, event_named(trajectory, "m_0"), facts(recorder))
    assert links[0].why.startswith("calc ended after event ")
    assert any(link.call_key.startswith("m_0--") for link in links)
    assert links[-1].type == "rollout.requested"


def test_a_worker_that_started_while_a_call_was_open_is_told() -> None:
    recorder = recorded_run(1)
    trajectory = trajectory_of(recorder)
    call = trajectory.calls["m_2"]
    started = WorkerStarted(
        worker="calc_env-0-ccc",
        kind="resources",
        instance="calc_env",
        implementation="x",
        version="1",
        digest="",
        python="3.11",
        jetgym="0",
        host="h",
        pid=1,
    )
    assert call.replied is not None
    between = call.requested.event.time + (call.replied.event.time - call.requested.event.time) / 2
    event = msgspec.structs.replace(
        call.requested.event, type="deployment.worker", time=between, data=msgspec.Raw(msgspec.json.encode(started))
    )
    raw = encode(event)
    told = Facts([(Recorded(seq=1, subject="", event=decode(raw), raw=raw), bytes(event.data))])
    (link, *_) = chain(trajectory, event_named(trajectory, "m_2"), told)
    assert link.notes == ("worker calc_env-0-ccc started 167 ms after the request: it may have come twice",)


def test_an_event_is_named_by_its_id_its_number_or_its_call() -> None:
    trajectory = trajectory_of(recorded_run(1))
    verified = trajectory.calls["m_2"].replied
    assert verified is not None
    for name in (verified.event.id, str(verified.seq), "m_2"):
        assert event_named(trajectory, name) is verified
    assert event_named(trajectory, "0") is trajectory.requested
    with pytest.raises(UnknownName):
        event_named(trajectory, "nothing")
