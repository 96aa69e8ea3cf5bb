from components.agents.base import AgentConfig
from replay.timeline import News, Step, timeline, walk
from tests.unit.replay.examples import (
    CALC,
    Delegating,
    Patient,
    calculator,
    recorded_run,
    task,
    trajectory_of,
)
from tests.unit.replay.recorder import Recorder


def keys(steps: list[Step]) -> list[str]:
    return [step.call.key for step in walk(steps) if step.call is not None]


def test_steps_stand_in_the_order_in_which_calls_were_asked_for() -> None:
    trajectory = trajectory_of(recorded_run(1))
    assert keys(timeline(trajectory)) == ["m_0", "m1_0", "m2_0", "m_1", "m_2"]


def test_time_from_request_to_reply_is_split_into_work_and_waiting() -> None:
    first = timeline(trajectory_of(recorded_run(1)))[0]
    assert first.took is not None
    assert first.worked == 0.25
    assert abs(first.worked + first.waited - first.took) < 1e-9


def test_calls_that_were_under_way_at_once_are_marked_and_others_are_not() -> None:
    steps = timeline(trajectory_of(recorded_run(1)))
    assert [(step.together, step.place) for step in steps] == [(1, 0), (2, 0), (2, 1), (1, 0), (1, 0)]


def test_a_timeout_that_does_not_fire_makes_nothing_parallel() -> None:
    recorder = Recorder({"patient": (Patient, AgentConfig(model="policy", resources="calc_env"))}, calculator)
    recorder.rollout("r1-00000-00", "patient", task())
    steps = timeline(trajectory_of(recorder))
    assert [(step.call.what, step.together) for step in steps if step.call is not None] == [
        ("timer", 1),
        ("timer", 1),
        ("model", 1),
        ("verify", 1),
    ]


def test_what_happened_under_a_call_stands_under_its_step() -> None:
    recorder = Recorder({**CALC, "boss": (Delegating, AgentConfig(model="policy"))}, calculator)
    recorder.rollout("r1-00000-00", "boss", task())
    steps = timeline(trajectory_of(recorder))
    assert [step.call.key for step in steps if step.call is not None] == ["m_0", "m_1"]
    assert keys(steps[0].steps) == [f"m_0--{key}" for key in ("m_0", "m1_0", "m2_0", "m_1", "m_2")]


def test_each_item_of_a_conversation_is_news_once() -> None:
    trajectory = trajectory_of(recorded_run(1))
    news = News(trajectory)
    first, second = trajectory.calls["m_0"], trajectory.calls["m_1"]
    settings, items = news.request(first)
    assert [item["content"] for item in items] == ["What are 5 + 7 and 5 * 7?"]
    assert [tool["name"] for tool in settings["tools"]] == ["add", "multiply"]
    assert len(news.reply(first)["output"]) == 2
    news.output(trajectory.calls["m1_0"], "12", "c1")
    news.output(trajectory.calls["m2_0"], "35", "c2")
    assert news.request(second) == ({}, [])


def test_an_edited_history_shows_what_was_put_in() -> None:
    trajectory = trajectory_of(recorded_run(1))
    news = News(trajectory)
    news.request(trajectory.calls["m_0"])
    news.reply(trajectory.calls["m_0"])
    news.output(trajectory.calls["m1_0"], "another output", "c1")
    news.output(trajectory.calls["m2_0"], "35", "c2")
    assert [item["output"] for item in news.request(trajectory.calls["m_1"])[1]] == ["12"]
