"""`replay step`: a debugger over time."""

import io
import json
import re
from typing import Any

import pytest
from rich.console import Console

from components.agents.base import Agent, AgentConfig
from components.agents.simple_agent.app import SimpleAgent
from contracts.responses import Response, ResponseCreateParams
from replay.debugger import Debugger
from replay.engine import departure_of
from replay.stepping import Stepper, _quietly
from replay.trajectory import Trajectory
from tests.unit.replay.examples import (
    CALC,
    CALCULATOR,
    Clumsy,
    Delegating,
    OneTurn,
    calculator,
    edited,
    recorded_run,
    task,
    trajectory_of,
)
from tests.unit.replay.recorder import Recorder

_ADDRESS = re.compile(" at 0x[0-9a-f]+")
CONFIG = AgentConfig(model="policy", resources="calc_env")


class Stopping(Agent[AgentConfig]):
    """Has a breakpoint after its second model call, and says so."""

    async def responses(self, request: ResponseCreateParams) -> Response:
        first = await self.model.responses(request)
        counted = len(first.output)
        print("first")  # noqa: T201
        again = await self.model.responses(request)
        breakpoint()  # noqa: T100 - it is what is tested
        counted += len(again.output)
        print("second", counted)  # noqa: T201
        return await self.model.responses(request)


def stepper(trajectory: Trajectory, agent: type[Agent[Any]] = SimpleAgent, config: AgentConfig = CALCULATOR) -> Stepper:
    return Stepper(trajectory, next(trajectory.executions()), agent, config)


def recorded(agent: type[Agent[AgentConfig]], name: str = "it") -> Trajectory:
    recorder = Recorder({**CALC, name: (agent, CONFIG)}, calculator)
    with _quietly():  # a breakpoint would stop the recording
        recorder.rollout("r1-00000-00", name, task())
    return trajectory_of(recorder)


def session(found: Stepper, *lines: str, at: str | None = None, breaks: tuple[str, ...] = ()) -> str:
    """What a session with these lines says."""
    output = io.StringIO()
    debugger = Debugger(found, Console(file=output, width=200), io.StringIO("\n".join(lines) + "\n"))
    debugger.run(at, breaks)
    return output.getvalue()


def variables(found: Stepper) -> list[tuple[str, dict[str, str]]]:
    return [
        (
            branch.path,
            {
                name: _ADDRESS.sub("", repr(value))
                for name, value in branch.frames[-1].f_locals.items()
                if name != "self"
            },
        )
        for branch in found.branches()
        if branch.frames
    ]


def test_at_every_point_the_frames_are_those_of_a_run_that_went_straight_there() -> None:
    """Forwards, back and jumping."""
    trajectory = trajectory_of(recorded_run(1))
    straight, jumping = stepper(trajectory), stepper(trajectory)
    states = {}
    for position in range(1, straight.last + 1):
        straight.goto(position)
        states[position] = variables(straight)
    for position in (3, 1, 5, 2, 4, straight.last, 3, 3, 1, straight.last):
        jumping.goto(position)
        assert (jumping.position, variables(jumping)) == (position, states[position])
    assert straight.done
    straight.close()
    jumping.close()


def test_the_code_is_told_with_what_it_waits_for() -> None:
    said = session(stepper(trajectory_of(recorded_run(1))), "next", "where", "calls", "reply")
    assert "[1/6] event " in said
    assert "waits for m1_0 (tool calc_env), m2_0 (tool calc_env)" in said
    assert "simple_agent/app.py:" in said
    assert '"function_call"' in said


def test_variables_are_shown_and_expressions_evaluated_in_the_chosen_frame() -> None:
    said = session(
        stepper(recorded(Stopping), Stopping, CONFIG), "next", "locals", "print counted + 40", "print nothing"
    )
    assert "counted = 2" in said
    assert "\n42\n" in said
    assert "NameError" in said


def test_continue_stops_where_it_is_told_to() -> None:
    trajectory = trajectory_of(recorded_run(1))
    for condition, key in (("call multiply", "m2_0"), ("turn 2", "m_1"), ("tokens 20", "m_1"), ("call verify", "m_2")):
        found = stepper(trajectory)
        session(found, "continue", breaks=(condition,))
        assert found.reply is not None
        assert found.reply.key == key, condition
    assert "none; there are: call NAME" in session(stepper(trajectory), "break turn", "clear", "break")


def test_a_condition_that_nothing_recorded_meets_is_remarked_on() -> None:
    trajectory = trajectory_of(recorded_run(1))
    met = ("call multiply", "call m_1", "turn", "turn 2", "tokens 30", "exception", "divergence")
    assert "nothing that is recorded meets" not in session(stepper(trajectory), breaks=met)
    said = session(stepper(trajectory), "break turn 3", "break tokens 31", "break tokens 0", breaks=("call subtract",))
    assert "meets 'call subtract': no answered call is called so; there are: model, policy, multiply, tool, " in said
    assert "meets 'turn 3': it has 2 turns" in said
    assert said.count("it takes 30 tokens") == 2


def test_an_exception_is_a_place_to_stop_with_the_frames_that_it_left() -> None:
    found = stepper(recorded(Clumsy), Clumsy, CONFIG)
    said = session(found, "continue", "locals", breaks=("exception",))
    assert "agent_error: ValueError: 2 items are not what was expected" in said
    assert "reply = Response(" in said


def test_the_first_difference_is_where_it_ends_and_it_is_told() -> None:
    log = recorded_run(1).log
    tool = next(each for each in log if each.event.type == "tool.replied" and b'"output":"12"' in each.raw)
    events = [each for each in edited(log, tool.seq, b'"output":"12"', b'"output":"13"') if each.event.rolloutid]
    found = stepper(Trajectory("r1-00000-00", events))
    said = session(found, "continue", "next", "back", breaks=("divergence",))
    assert "the code departs here: the call has other arguments (call m_1" in said
    assert 'recorded "12", now "13"' in said
    assert "there is no going on" in said
    assert found.position == found.last - 1


def test_an_agent_that_was_called_is_stepped_through_by_itself() -> None:
    recorder = Recorder({**CALC, "boss": (Delegating, AgentConfig(model="policy"))}, calculator)
    recorder.rollout("r1-00000-00", "boss", task())
    trajectory = trajectory_of(recorder)
    nested = [run for run in trajectory.executions() if run.prefix]
    found = Stepper(trajectory, nested[0], SimpleAgent, CALCULATOR)
    session(found, at="end")
    assert found.done
    assert found.last == 6
    session(found, at="turn:2")
    assert found.call is not None
    assert found.position_of(trajectory.calls["m_0--m_1"].requested.seq) == found.position


def test_breakpoint_in_the_code_opens_pythons_debugger_in_the_step_that_reaches_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And nowhere else: not where the code is run once more to go back."""
    trajectory = recorded(Stopping)
    session(
        stepper(trajectory, Stopping, CONFIG),
        "next",
        "next",
        "p counted * 100",
        "n",
        "p counted",
        "c",
        "back",
        "next",
        "q",
    )
    out = capsys.readouterr().out
    assert out.count("(Pdb)") == 5
    assert "200" in out
    assert "test_stepping.py" in out
    assert out.count("second 4") == 2
    assert out.count("first") == 1 + 1


def test_leaving_pythons_debugger_does_not_end_the_code() -> None:
    found = stepper(recorded(Stopping), Stopping, CONFIG)
    said = session(found, "next", "next", "q", "goto end")
    assert "the code has ended: reward 1" in said


def test_nothing_is_touched_by_a_session(capsys: pytest.CaptureFixture[str]) -> None:
    """R1: also where an expression changes a variable of the code."""
    recorder = recorded_run(1)
    before = [event.raw for event in recorder.log]
    trajectory = trajectory_of(recorder)
    found = stepper(trajectory)
    session(found, "next", "print self.__dict__.clear()", "back", "next", "goto end", "start")
    found.close()
    assert [event.raw for event in recorder.log] == before
    assert departure_of(trajectory, next(trajectory.executions()), SimpleAgent, CALCULATOR) is None
    capsys.readouterr()


def test_what_cannot_be_meant_is_told_and_the_session_goes_on() -> None:
    said = session(
        stepper(recorded(OneTurn), OneTurn, CONFIG), "goto m_99", "break x", "next x", "branch m9", "hop", "goto end"
    )
    assert "there is no call 'm_99'" in said
    assert "'x' is nothing to stop at" in said
    assert "'x' is no number of steps" in said
    assert "there is no branch 'm9' here" in said
    assert "there is no command 'hop'" in said
    assert "the code has ended" in said


def test_json_tells_each_place_on_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    debugger = Debugger(
        stepper(recorded(Stopping), Stopping, CONFIG), Console(), io.StringIO("n\nn\nc\ng 0\n"), json=True
    )
    debugger.run(None, ())
    captured = capsys.readouterr()
    states = [json.loads(line) for line in captured.out.splitlines()]
    assert [state["position"] for state in states] == [1, 2, 3, 1]
    assert states[1]["waits_for"] == ["m_1"]
    assert "first" in captured.err
