import io
import re

import msgspec
import pytest
from rich.console import Console

from components.agents.base import AgentConfig
from components.durable import Call
from contracts.events import CallError
from contracts.responses import function_call, output_message
from replay.document import document
from replay.exports.page import html_page
from replay.header import draw_header, header_lines
from replay.page import cut, safe, seconds
from replay.story import Story, reward_text
from replay.trajectory import Trajectory
from replay.ui.rollout import rollout_view
from tests.unit.replay.examples import (
    CALC,
    Clumsy,
    Delegating,
    calculator,
    facts,
    recorded_run,
    refusing,
    task,
    trajectory_of,
)
from tests.unit.replay.recorder import START, SUBJECTS, Recorder, model_reply


def told(trajectory: Trajectory, *, width: int = 80, full: bool = False, terminal: bool = False) -> str:
    output = io.StringIO()
    console = Console(file=output, width=width, force_terminal=terminal, color_system=None)
    Story(trajectory, console, full=full).draw()
    return output.getvalue()


def test_the_story_of_a_rollout_is_what_it_was_before() -> None:
    """The whole picture, so that a change of it is looked at."""
    recorder = Recorder(CALC, calculator)
    recorder.rollout("r1-00000-00", "calc", task())
    assert told(trajectory_of(recorder)) == STORY


def test_snapshots_are_not_part_of_the_story() -> None:
    """They are for the worker that goes on with the session."""

    def remembering(call: Call) -> bytes | CallError:
        if call.type == "session.requested":
            return b'{"calls":0,"state":{"secret":0}}'
        answered = calculator(call)
        if call.type == "tool.requested" and isinstance(answered, bytes):
            snapshot = {"calls": 1, "state": {"secret": 1}}
            return msgspec.json.encode(msgspec.json.decode(answered) | {"snapshot": snapshot})
        return answered

    recorder = Recorder(CALC, remembering)
    recorder.rollout("r1-00000-00", "calc", task())
    assert told(trajectory_of(recorder), full=True) == told(trajectory_of(recorder)) == STORY


STORY = """\
  0.333 s model policy  250 ms + 83 ms queued              #2 m_0 @ policy-0-bbb
          tools     add, multiply
          user      What are 5 + 7 and 5 * 7?
          calls     add(a=5, b=7)
          calls     multiply(a=5, b=7)
                    10 tokens in, 5 out

          ┌ 2 in parallel
  1.000 s │ tool add  250 ms + 417 ms queued            #4 m1_0 @ calc_env-0-bbb
          │ returns   12
          │
  1.333 s │ tool multiply  250 ms + 417 ms queued       #5 m2_0 @ calc_env-0-bbb
          │ returns   35
          └

  2.333 s model policy  250 ms + 83 ms queued              #8 m_1 @ policy-0-bbb
          says      12 and 35
                    10 tokens in, 5 out

  3.000 s verify calc_env  250 ms + 83 ms queued        #10 m_2 @ calc_env-0-bbb
          reward    1 = right 0.75 + short 0.25

  3.667 s completed  reward 1                                      by calc-0-aaa
"""


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    recorder = Recorder({**CALC, "boss": (Delegating, AgentConfig(model="policy"))}, calculator)
    recorder.rollout("r1-00000-00", "boss", task("words " * 100 + "x" * 300))
    assert max(map(len, told(trajectory_of(recorder), width=width, terminal=True).splitlines())) <= width


def test_without_a_terminal_there_is_no_escape_sequence() -> None:
    assert "\x1b" not in told(trajectory_of(recorded_run(1)))


def test_a_models_control_characters_do_not_reach_the_terminal() -> None:
    def hostile(call: Call) -> bytes | CallError:
        if call.type == "model.requested":
            return model_reply(output_message("\x1b[2Jgone\x07 \u202eback", item_id="m"))
        return calculator(call)

    recorder = Recorder(CALC, hostile)
    recorder.rollout("r1-00000-00", "calc", task())
    story = told(trajectory_of(recorder))
    assert r"\x1b[2Jgone\x07 \u202eback" in story
    assert "\x1b" not in story


def test_a_failed_call_is_told_with_its_kind_and_message() -> None:
    recorder = Recorder(CALC, refusing)
    recorder.rollout("r1-00000-00", "calc", task())
    story = told(trajectory_of(recorder))
    assert "failed    unavailable: policy does not answer" in story
    assert "failed: unavailable" in story.splitlines()[-2]


def test_an_exception_of_the_agent_is_told_with_the_end_of_its_traceback() -> None:
    recorder = Recorder({"clumsy": (Clumsy, AgentConfig(model="policy", resources="calc_env"))}, calculator)
    recorder.rollout("r1-00000-00", "clumsy", task())
    story = told(trajectory_of(recorder), width=40)
    assert "failed: agent_error" in story
    assert "ValueError: 2 items are not what was expected" in story
    assert re.search(r' File "\S+/examples\.py", line \d+, in responses\n +raise ValueError\(', story)


def test_a_call_without_a_reply_says_so() -> None:
    recorder = Recorder(CALC, calculator)
    recorder.rollout("r1-00000-00", "calc", task(), stop_after=2)
    story = told(trajectory_of(recorder))
    assert "no reply is recorded" in story
    assert "in flight: the last event is tool.replied" in story


def test_long_contents_are_cut_with_a_count_unless_all_is_asked_for() -> None:
    recorder = Recorder(CALC, calculator)
    recorder.rollout("r1-00000-00", "calc", task("long " * 1000))
    assert "3,800 more: --full shows all characters" in told(trajectory_of(recorder))
    assert told(trajectory_of(recorder), full=True).count("long") == 1000


def test_arguments_that_are_no_json_are_shown_as_the_model_wrote_them() -> None:
    def broken(call: Call) -> bytes | CallError:
        if call.type == "model.requested" and b"function_call" not in call.data:
            return model_reply(function_call("c1", "add", '{"a": 5,'))
        if call.type == "tool.requested":
            return msgspec.json.encode({"output": "the arguments are no JSON"})
        return calculator(call)

    recorder = Recorder(CALC, broken)
    recorder.rollout("r1-00000-00", "calc", task())
    assert 'add with arguments that are no JSON: {"a": 5,' in told(trajectory_of(recorder))


def test_the_calls_of_an_agent_that_was_called_are_indented() -> None:
    recorder = Recorder({**CALC, "boss": (Delegating, AgentConfig(model="policy"))}, calculator)
    recorder.rollout("r1-00000-00", "boss", task())
    lines = told(trajectory_of(recorder)).splitlines()
    assert lines[0].startswith("  0.333 s agent calc")
    assert any(line[10:].startswith("    model policy") for line in lines)


def test_an_adoption_is_told_where_it_happened() -> None:
    recorder = recorded_run(1)
    recorder.write(
        "rollout.adopted",
        SUBJECTS.adopted("r1", "r1-00000-00", 1),
        b'{"epoch": 1, "worker": "calc-1-ccc"}',
        rolloutid="r1-00000-00",
        callkey="run",
    )
    story = told(trajectory_of(recorder))
    assert "adopted by calc-1-ccc (epoch 1)" in story


def test_an_event_of_a_type_that_is_not_known_is_shown_as_it_stands() -> None:
    """R5, the reading part."""
    recorder = recorded_run(1)
    recorder.write(
        "rollout.praised", "jetgym.0.rollout.praised.r1.r1-00000-00", b'{"by": 0.5}', rolloutid="r1-00000-00"
    )
    story = told(trajectory_of(recorder))
    assert "rollout.praised by orchestrator/o1" in story
    assert '"by": 0.5' in story


def test_later_scores_stand_behind_the_end_and_the_reward_has_the_parts_of_the_latest() -> None:
    """In the header, in JSON and as a page: what it ended with is told beside it."""
    recorder = recorded_run(1)
    for number, was in ((1, 1.0), (2, 0.5)):
        revised = {"reward": 0.5, "was": was, "extra": {"reward_components": {"right": 0.5, "short": 0.0}}}
        recorder.write(
            "rollout.revised",
            SUBJECTS.revised("r1", "r1-00000-00", number),
            msgspec.json.encode(revised),
            rolloutid="r1-00000-00",
            source="replay/replay-1",
        )
    trajectory = trajectory_of(recorder)
    end = told(trajectory).splitlines()[-3:]
    for line, part in zip(
        end,
        (
            "completed  reward 1 ",
            "revised  reward 0.5 = right 0.5 + short 0 ",
            "revised  reward 0.5 = right 0.5 + short 0, as before ",
        ),
        strict=True,
    ):
        assert part in line
    assert "by replay-1" in end[1]
    (outcome,) = [value for label, value in header_lines(trajectory, facts(recorder)) if label == "outcome"]
    assert outcome == (
        "completed, reward 0.5 = right 0.5 + short 0; 1 = right 0.75 + short 0.25 before it was revised 2 times"
    )
    found = msgspec.json.decode(b"".join(document(trajectory, facts(recorder))))
    assert (found["reward"], found["first_reward"]) == (0.5, 1)
    assert found["extra"]["reward_components"] == {"right": 0.5, "short": 0.0}
    page = "".join(html_page(trajectory, facts(recorder)))
    first = page.index('<h2><span class="good">reward 1</span></h2>')
    assert first < page.index("revised: reward 0.5 = right 0.5 + short 0 ")
    assert "rollout.revised" not in page
    view = rollout_view(trajectory, facts(recorder), [])
    assert (view.first_reward, view.components) == (1, {"right": 0.5, "short": 0.0})
    assert [revision.text for revision in view.revisions] == [
        "0.5 = right 0.5 + short 0",
        "0.5 = right 0.5 + short 0, as before",
    ]
    assert "rollout.revised" not in {step.what for step in view.steps}


def test_the_header_names_who_what_and_how() -> None:
    recorder = recorded_run(1)
    output = io.StringIO()
    draw_header(trajectory_of(recorder), facts(recorder), Console(file=output, width=80))
    header = output.getvalue()
    for part in (
        "r1-00000-00",
        "0, rollout 0 of its group",
        "calc: simple_agent version 1, source ",
        "resources calc_env",
        "completed, reward 1 = right 0.75 + short 0.25",
        "2 model calls, 2 tool calls",
        "20 in, 10 out, 30 together",
        "model 500 ms, tools 500 ms, verify 250 ms",
        f"{START:%Y-%m-%d} 03:04:0",
        "calc-0-aaa, policy-0-bbb, calc_env-0-bbb",
    ):
        assert part in header


def test_the_header_names_the_models_also_where_no_end_counts_them() -> None:
    recorder = Recorder(CALC, calculator)
    recorder.rollout("r1-00000-00", "calc", task(), stop_after=1)
    output = io.StringIO()
    draw_header(trajectory_of(recorder), facts(recorder), Console(file=output, width=80))
    assert "model     policy" in output.getvalue()


def test_texts_are_cut_to_their_beginning_or_their_end() -> None:
    assert cut("a\nb\nc", lines=2, characters=99) == ("a\nb", 2)
    assert cut("a\nb\nc", lines=2, characters=99, end=True) == ("b\nc", 2)
    assert cut("abc", lines=2, characters=2) == ("ab", 1)
    assert cut("abc", lines=2, characters=3) == ("abc", 0)


def test_control_characters_are_written_out_and_line_breaks_kept() -> None:
    assert safe("a\r\nb\tc\x00") == "a\nb   c\\x00"


def test_durations_are_told_in_the_unit_that_fits() -> None:
    assert [seconds(value) for value in (0.0004, 0.25, 3.21, 65, 600)] == [
        "0.4 ms",
        "250 ms",
        "3.21 s",
        "65 s",
        "10 min 0 s",
    ]


def test_a_reward_without_parts_is_only_a_number() -> None:
    assert reward_text(0.5, None) == "0.5"
    assert reward_text(None, None) == "none"
