import pytest

from components.agents.base import AgentConfig
from contracts.rollouts import RolloutFailure, RolloutResult
from replay.errors import BrokenHistory
from replay.trajectory import Trajectory
from tests.unit.replay.examples import CALC, Clumsy, Delegating, calculator, recorded_run, task, trajectory_of
from tests.unit.replay.recorder import Recorder


def test_requests_and_replies_are_put_together_as_calls() -> None:
    trajectory = trajectory_of(recorded_run(1))
    assert {key: (call.what, call.instance) for key, call in trajectory.calls.items()} == {
        "m_0": ("model", "policy"),
        "m1_0": ("tool", "calc_env"),
        "m2_0": ("tool", "calc_env"),
        "m_1": ("model", "policy"),
        "m_2": ("verify", "calc_env"),
    }
    assert all(call.worker == f"{call.instance}-0-bbb" for call in trajectory.calls.values())
    assert all(call.caller == "calc-0-aaa" for call in trajectory.calls.values())


def test_a_completed_rollout_has_its_reward_and_a_failed_one_has_none() -> None:
    completed = trajectory_of(recorded_run(1))
    recorder = Recorder({"clumsy": (Clumsy, AgentConfig(model="policy", resources="calc_env"))}, calculator)
    recorder.rollout("r1-00000-00", "clumsy", task())
    failed = trajectory_of(recorder)
    assert isinstance(completed.outcome, RolloutResult)
    assert (completed.state, completed.reward) == ("completed", 1.0)
    assert isinstance(failed.outcome, RolloutFailure)
    assert (failed.state, failed.reward) == ("failed", None)


def test_a_rollout_in_flight_has_calls_without_replies() -> None:
    recorder = Recorder(CALC, calculator)
    recorder.rollout("r1-00000-00", "calc", task(), stop_after=2)
    trajectory = trajectory_of(recorder)
    assert trajectory.state == "in flight"
    assert trajectory.outcome is None
    assert [key for key, call in trajectory.calls.items() if call.replied is None] == ["m2_0"]


def test_the_calls_of_an_agent_that_was_called_belong_to_its_own_execution() -> None:
    recorder = Recorder({**CALC, "boss": (Delegating, AgentConfig(model="policy"))}, calculator)
    recorder.rollout("r1-00000-00", "boss", task())
    trajectory = trajectory_of(recorder)
    runs = list(trajectory.executions())
    assert [(run.prefix, run.agent) for run in runs] == [("", "boss"), ("m_0--", "calc")]
    assert [key for key in trajectory.calls if runs[0].owns(key)] == ["m_0", "m_1"]
    assert all(key.startswith("m_0--") for key in trajectory.calls if runs[1].owns(key))


def test_the_order_in_which_events_are_given_does_not_matter() -> None:
    recorder = recorded_run(1)
    events = [event for event in recorder.log if event.event.rolloutid]
    assert list(Trajectory("r1-00000-00", reversed(events)).calls) == list(Trajectory("r1-00000-00", events).calls)


def test_events_without_a_request_are_refused_with_the_rollouts_name() -> None:
    events = [event for event in recorded_run(1).log if event.event.type == "rollout.completed"]
    with pytest.raises(BrokenHistory, match="r1-00000-00: its request is not among its 1 events"):
        Trajectory("r1-00000-00", events)
