"""How two trajectories differ."""

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from components.agents.base import AgentConfig
from components.durable import Call
from contracts.codec import decode, encode
from contracts.events import CallError, Recorded
from contracts.responses import output_message
from contracts.tokens import Capture, pack_ids, pack_logprobs
from replay.diff import difference
from replay.trajectory import Trajectory
from replay.words import changes, word_pieces
from tests.unit.replay.examples import CALC, Delegating, calculator, task, trajectory_of
from tests.unit.replay.recorder import Answer, Recorder, model_reply
from tests.unit.replay.test_cli import Replay, replay, write

__all__ = ["replay"]


def recorded(answer: Answer = calculator, seed: int = 0, rollout: str = "r1-00000-00") -> Trajectory:
    recorder = Recorder(CALC, answer)
    recorder.rollout(rollout, "calc", task(), order=random.Random(seed))
    return trajectory_of(recorder, rollout)


def says(text: str) -> Answer:
    def answer(call: Call) -> bytes | CallError:
        if call.type == "model.requested" and call.key == "m_1":
            return model_reply(output_message(text, item_id=f"msg_{len(text)}"))
        return calculator(call)

    return answer


def with_tokens(trajectory: Trajectory, key: str, ids: list[int]) -> Trajectory:
    capture = Capture(generated=pack_ids(ids), logprobs=pack_logprobs([-0.5] * len(ids)))
    events = []
    for recorded in trajectory.events:
        event = recorded.event
        if event.type == "model.replied" and event.callkey == key:
            event = msgspec.structs.replace(event, capture=msgspec.Raw(msgspec.json.encode(capture)))
        events.append(Recorded(seq=recorded.seq, subject=recorded.subject, event=decode(encode(event)), raw=b""))
    return Trajectory(trajectory.rollout_id, events)


def test_two_attempts_that_say_the_same_are_the_same_whatever_the_order_of_replies() -> None:
    found = difference(recorded(seed=0), recorded(seed=3, rollout="r1-00001-00"))
    assert (found.verdict, found.first) == ("same", None)
    assert found.counts == {"same": 5}


def test_the_first_difference_is_the_reply_that_differs_and_is_told_once() -> None:
    found = difference(recorded(), recorded(says("12 and 36")))
    assert found.verdict == "differs"
    assert [call.label for call in found.calls if call.status != "same"] == ["m_1"]
    assert found.first is not None
    ((change,), turn) = found.first.reply, found.first.turn
    assert (change.path, turn) == ("output.0.content.0.text", 2)
    assert [(piece.op, piece.text) for piece in change.words if piece.op != "same"] == [
        ("removed", "35"),
        ("added", "36"),
    ]


def test_calls_that_only_one_has_stand_where_they_were_made() -> None:
    def at_once(call: Call) -> bytes | CallError:
        if call.type == "model.requested":
            return model_reply(output_message("12 and 35", item_id="msg_1"))
        return calculator(call)

    found = difference(recorded(), recorded(at_once))
    assert [(call.label, call.status) for call in found.calls] == [
        ("m_0", "differs"),
        ("m1_0", "removed"),
        ("m2_0", "removed"),
        ("m_1", "differs"),
        ("m_2", "removed"),
    ]
    by_turn = difference(recorded(), recorded(at_once), by="turn")
    assert [(call.label, call.status) for call in by_turn.calls] == [
        ("turn 1 model 1", "differs"),
        ("turn 1 verify 1", "added"),
        ("turn 1 tool 1", "removed"),
        ("turn 1 tool 2", "removed"),
        ("turn 2 model 1", "removed"),
        ("turn 2 verify 1", "removed"),
    ]


def test_tokens_are_compared_where_both_have_them() -> None:
    one, other = with_tokens(recorded(), "m_1", [5, 6, 7]), with_tokens(recorded(), "m_1", [5, 8])
    (call,) = [call for call in difference(one, other).calls if call.status != "same"]
    assert call.tokens is not None
    assert (call.tokens.same, call.tokens.lengths, call.tokens.tokens) == (1, (3, 2), (6, 8))
    assert call.tokens.logprobs == (-0.5, -0.5)
    assert difference(one, one).verdict == difference(one, recorded()).verdict == "same"


def test_a_reward_that_differs_is_a_difference() -> None:
    def strict(call: Call) -> bytes | CallError:
        return b'{"reward": 0.0}' if call.type == "verify.requested" else calculator(call)

    found = difference(recorded(), recorded(strict))
    assert found.rewards == (1.0, 0.0)
    assert [change.path for change in found.result] == ["reward", "reward_components"]


@pytest.mark.parametrize(
    ("one", "other", "paths"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 1.5, "b": None}, [("a", "changed"), ("b", "added")]),
        ({"a": [1, 2, 3]}, {"a": [1, 3]}, [("a.1", "removed")]),
        ({"a": [{"x": 1, "id": 7}]}, {"a": [{"x": 1, "id": 8}]}, []),
        ({"a": '{"x": 1}'}, {"a": '{"x": 2}'}, [("a.x", "changed")]),
        ({"a": '{"x": 1}'}, {"a": '{"x":1}'}, [("a", "changed")]),
        ([1], {"a": 1}, [("", "changed")]),
    ],
)
def test_json_is_compared_place_by_place(one: Any, other: Any, paths: list[tuple[str, str]]) -> None:
    found = changes(msgspec.json.encode(one), msgspec.json.encode(other), frozenset({"id"}))
    assert [(change.path, change.kind) for change in found] == paths


@pytest.mark.parametrize(("one", "other"), [("", "a b"), ("a b c", "a c"), ("x", "x"), ("a  b", "a b"), ("", "")])
def test_the_pieces_of_two_texts_put_together_are_these_texts(one: str, other: str) -> None:
    found = word_pieces(one, other)
    assert "".join(piece.text for piece in found if piece.op != "added") == one
    assert "".join(piece.text for piece in found if piece.op != "removed") == other


def test_long_texts_are_compared_in_a_bounded_time() -> None:
    one, other = " ".join(map(str, range(30_000))), " ".join(map(str, range(1, 30_001)))
    found = word_pieces(f"a {one} z", f"a {other} z")
    assert [piece.op for piece in found] == ["same", "removed", "added", "same"]


def test_r7_diff_ends_with_0_1_or_2(replay: Replay, tmp_path: Path) -> None:
    """R7: and without a second rollout it is for forks."""
    recorder = Recorder(CALC, calculator)
    for rollout in ("r1-00000-00", "r1-00001-00"):
        recorder.rollout(rollout, "calc", task())
    log = write(tmp_path / "log.jsonl", recorder)
    other = tmp_path / "other.jsonl"
    other.write_bytes(log.read_bytes().replace(b"12 and 35", b"12 and 36"))
    code, out, _ = replay("diff", "r1-00000-00", "r1-00001-00", "--file", log)
    assert (code, out.splitlines()[-1]) == (0, "the same in 5 calls")
    code, out, _ = replay("diff", "r1-00000-00", "r1-00000-00", "--file", log, "--with-file", other)
    assert code == 1
    assert "the same in 3 calls, then they part at m_1" in out
    assert "output.0.content.0.text 12 and [-35-]{+36+}" in out
    assert "reward 1 → 1 (+0)" in out
    code, _, err = replay("diff", "r1-00000-00", "--file", log)
    assert (code, "is no fork" in err) == (2, True)


def test_how_long_an_agent_that_was_called_took_is_no_difference() -> None:
    """Its result says that too, beside what the calls under it say."""
    recorder = Recorder({**CALC, "boss": (Delegating, AgentConfig(model="policy"))}, calculator)
    recorder.rollout("r1-00000-00", "boss", task())
    one = trajectory_of(recorder)
    replied = one.calls["m_0"].replied
    assert replied is not None
    result = msgspec.json.decode(replied.event.data)
    result["stats"]["timings"]["total_s"] += 1.5
    slower = msgspec.structs.replace(replied.event, data=msgspec.Raw(msgspec.json.encode(result)))
    changed = Recorded(seq=replied.seq, subject=replied.subject, event=slower, raw=encode(slower))
    other = Trajectory(one.rollout_id, [changed if event is replied else event for event in one.events])
    assert (difference(one, other).verdict, difference(one, other).first) == ("same", None)
