"""The lanes of a timeline, and which stretches of it are made short."""

import msgspec
import pytest

from components.agents.base import AgentConfig
from contracts.rollouts import Adopted, Revised
from replay.ui.lanes import lanes_of, scale
from tests.unit.replay.examples import CALC, Patient, calculator, facts, recorded_run, task, trajectory_of
from tests.unit.replay.recorder import Recorder


def test_a_call_waits_and_then_is_worked_on() -> None:
    recorder = recorded_run(1)
    told = lanes_of(trajectory_of(recorder), facts(recorder))
    model = next(lane for lane in told.lanes if lane.kind == "models")
    bar = model.bars[0]
    assert (bar.state, bar.worker) == ("answered", "policy-0-bbb")
    assert bar.start < bar.works < bar.end
    assert bar.end - bar.works == pytest.approx(0.25)


def test_a_later_score_is_no_part_of_what_happened() -> None:
    recorder = recorded_run(1)
    before = lanes_of(trajectory_of(recorder), facts(recorder))
    name = recorder.log[-1].event.rolloutid
    revised = msgspec.json.encode(Revised(reward=0.0, was=1.0))
    subject = f"jetgym.0.rollout.revised.r1.{name}.1"
    recorder.write("rollout.revised", subject, revised, rolloutid=name, source="replay/replay-1/replay-1")
    trajectory = trajectory_of(recorder)
    assert trajectory.reward == 0.0
    assert lanes_of(trajectory, facts(recorder)) == before
    assert not any(worker.startswith("replay") for worker in trajectory.workers)


def test_calls_at_the_same_time_are_on_rows_of_their_own() -> None:
    recorder = recorded_run(1)
    tools = next(lane for lane in lanes_of(trajectory_of(recorder), facts(recorder)).lanes if lane.kind == "tools")
    assert (tools.rows, sorted(bar.row for bar in tools.bars)) == (2, [0, 1])


def test_an_adoption_parts_the_agents_lane_and_shows_that_nobody_was_there() -> None:
    recorder = Recorder(CALC, calculator)
    recorder.deployment({"calc": "simple_agent"}, {"calc": ""})
    recorder.rollout("r1-00000-00", "calc", task(), stop_after=1)
    adopted = msgspec.json.encode(Adopted(epoch=1, worker="calc-1-ccc"))
    recorder.write(
        "rollout.adopted", "jetgym.0.rollout.adopted.r1.r1-00000-00.1", adopted, rolloutid="r1-00000-00", callkey="run"
    )
    told = lanes_of(trajectory_of(recorder), facts(recorder))
    agent = told.lanes[0]
    assert [bar.state for bar in agent.bars] == ["ran", "lost", "open"]
    assert agent.bars[-1].worker == "calc-1-ccc"
    assert [(mark.what, mark.lane) for mark in told.marks] == [("adopted", 0)]


def test_a_call_without_a_reply_is_open_to_the_end() -> None:
    recorder = Recorder(CALC, calculator)
    recorder.deployment({"calc": "simple_agent"}, {"calc": ""})
    recorder.rollout("r1-00000-00", "calc", task(), stop_after=1)
    told = lanes_of(trajectory_of(recorder), facts(recorder))
    assert {bar.state for lane in told.lanes if lane.kind == "tools" for bar in lane.bars} == {"open"}
    assert all(bar.end == told.total for lane in told.lanes if lane.kind == "tools" for bar in lane.bars)


def test_timers_have_a_lane() -> None:
    recorder = Recorder(
        {"calc": (Patient, AgentConfig.model_validate({"model": "policy", "resources": "calc_env"}))}, calculator
    )
    recorder.deployment({"calc": "patient"}, {"calc": ""})
    recorder.rollout("r1-00000-00", "calc", task())
    kinds = [lane.kind for lane in lanes_of(trajectory_of(recorder), facts(recorder)).lanes]
    assert kinds[-1] == "timers"


def test_a_stretch_in_which_nothing_happens_is_made_short_and_what_works_keeps_its_proportion() -> None:
    stretches = scale([0, 1, 2, 62, 63, 70], [(0, 1), (63, 70)], 0, 70)
    assert [(each.start, each.end, each.compressed) for each in stretches] == [
        (0, 2, False),
        (2, 62, True),
        (62, 70, False),
    ]
    assert stretches[0].left == 0
    assert stretches[-1].right == pytest.approx(1)
    widths = [each.right - each.left for each in stretches]
    assert widths[2] / widths[0] == pytest.approx(4)
    assert widths[1] < widths[0] + widths[2]


def test_a_rollout_of_one_moment_has_a_scale() -> None:
    assert scale([0.0], [], 0, 0) == []
