"""Recorded rollouts scored, and their tools called, by the components that are here; what new rewards change."""

import json
from pathlib import Path

import msgspec
import pytest

from components.resources.example_session_state_mgmt.app import CounterResources
from replay.facts import facts_of
from replay.file_source import FileSource, export_lines
from replay.rescoring import Rescorer
from replay.reverify import Rescore, changed, compared
from replay.source import load
from tests.unit.replay.examples import GOLDEN, recorded_run
from tests.unit.replay.test_cli import Replay, replay

__all__ = ["replay"]

SOLVER = GOLDEN / "solver.jsonl"
CONFIG = GOLDEN / "project" / "config.yaml"


async def test_r4_a_verifier_scores_a_session_that_was_made_again_as_it_did_live_and_twice_the_same() -> None:
    """R4: the counter has the recorded calls in it."""
    source = FileSource([SOLVER])
    rescorer = Rescorer(await facts_of(source))
    (rollout,) = {recorded.event.rolloutid async for recorded in source.outline()}
    trajectory = await load(source, rollout)
    first, again = [await rescorer.reverify(trajectory) for _ in range(2)]
    assert first == again
    assert first.now is not None
    assert first.was is not None
    assert first.now.reward == first.was.reward == 1


async def test_tools_answer_as_recorded_on_a_session_from_its_seed() -> None:
    source = FileSource([SOLVER])
    (rollout,) = {recorded.event.rolloutid async for recorded in source.outline()}
    found = await Rescorer(await facts_of(source)).retool(await load(source, rollout))
    assert [call.tool for call in found] == ["increment_counter", "increment_counter", "get_counter_value"]
    assert {call.verdict for call in found} == {"same"}


@pytest.mark.parametrize("kind", ["cancelled", "unavailable"])
async def test_a_call_that_no_tool_answered_is_not_made_again(tmp_path: Path, kind: str) -> None:
    """A cancelled rollout's last call, or one that a fork dropped: no tool has changed there."""
    lines = SOLVER.read_bytes().splitlines(keepends=True)
    (place,) = [n for n, line in enumerate(lines) if b'"tool.replied"' in line and b'"output":"8"' in line]
    event = msgspec.json.decode(lines[place])
    event |= {"type": "tool.failed", "data": {"kind": kind, "message": "it was ended"}}
    lines[place] = msgspec.json.encode(event) + b"\n"
    (tmp_path / "cut.jsonl").write_bytes(b"".join(lines))
    source = FileSource([tmp_path / "cut.jsonl"])
    (rollout,) = {recorded.event.rolloutid async for recorded in source.outline()}
    found = await Rescorer(await facts_of(source)).retool(await load(source, rollout))
    assert [(call.tool, call.verdict) for call in found] == [("increment_counter", "same")] * 2


async def test_what_a_verifier_and_tools_raise_is_told_with_its_line_and_logged_nowhere(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A worker logs it with its traceback."""

    async def raises(*_: object, **__: object) -> None:
        raise ValueError("gone")

    source = FileSource([SOLVER])
    (rollout,) = {recorded.event.rolloutid async for recorded in source.outline()}
    rescorer, trajectory = Rescorer(await facts_of(source)), await load(source, rollout)
    await rescorer.reverify(trajectory)
    line = raises.__code__.co_firstlineno + 1
    monkeypatch.setattr(CounterResources, "increment_counter", raises)
    found = await rescorer.reverify(trajectory)
    assert found.now is not None
    assert found.raised == (f"increment_counter raised ValueError: gone ({__file__}:{line})",)
    monkeypatch.setattr(CounterResources, "verify", raises)
    found = await rescorer.reverify(trajectory)
    assert found.error is not None
    assert found.error.message == f"CounterResources.verify raised ValueError: gone ({__file__}:{line})"
    assert found.raised == (f"increment_counter raised ValueError: gone ({__file__}:{line})",)
    assert {call.verdict for call in await rescorer.retool(trajectory)} == {"differs"}
    assert capfd.readouterr() == ("", "")


def flaky(tmp_path: Path) -> Path:
    """A recording in which the counter's tool is remembered to have said another number."""
    changed = tmp_path / "changed.jsonl"
    before = SOLVER.read_bytes()
    after = before.replace(b'"data":{"output":"8"}', b'"data":{"output":"9"}')
    assert before != after
    changed.write_bytes(after)
    return changed


def test_r7_retool_says_which_tool_differs_and_how(replay: Replay, tmp_path: Path) -> None:
    """R7."""
    assert replay("retool", "--file", SOLVER)[0] == 0
    code, out, _ = replay("retool", "--file", flaky(tmp_path))
    assert code == 1
    assert "counter get_counter_value  1 call, 0 the same, 1 different" in out
    assert "[-9-]{+8+}" in out
    code, out, _ = replay("retool", "--file", SOLVER, "--json")
    assert [json.loads(line)["verdict"] for line in out.splitlines()] == ["same"] * 3
    assert replay("retool")[0] == 2


def test_r7_reverify_of_a_file_only_tells(replay: Replay, tmp_path: Path) -> None:
    """R7."""
    assert replay("reverify", "--file", SOLVER)[0] == 2
    assert replay("reverify", "--file", SOLVER, "--dry-run")[0] == 0
    lines = SOLVER.read_bytes().replace(b'"expected_count":8', b'"expected_count":7')
    harder = tmp_path / "harder.jsonl"
    harder.write_bytes(lines)
    code, out, _ = replay("reverify", "--file", harder, "--dry-run")
    assert code == 1
    assert "1 → 0" in out
    code, out, _ = replay("reverify", "--file", harder, "--dry-run", "--json")
    found = json.loads(out)
    assert (code, found["was"], found["reward"], found["verdict"]) == (1, 1, 0, "differs")
    assert found["advantages"] == [0, 0]
    assert "revision" not in found


def test_advantages_and_which_flip_their_sign_are_in_the_json_too(replay: Replay, tmp_path: Path) -> None:
    """Of two attempts at one task the one that was right is wrong now."""
    first = SOLVER.read_bytes()
    (line,) = {line for line in first.splitlines() if b'"rollout.requested"' in line}
    rollout = json.loads(line)["rolloutid"]
    other = rollout[:-2] + "77"
    second = first.replace(rollout.encode(), other.encode()).replace(b'"reward":1', b'"reward":0')
    deployment = {line for line in first.splitlines() if b"rolloutid" not in line}
    log = tmp_path / "log.jsonl"
    log.write_bytes(
        first.replace(b'"expected_count":8', b'"expected_count":7')
        + b"".join(line + b"\n" for line in second.splitlines() if line not in deployment)
    )
    code, out, _ = replay("reverify", "--file", log, "--dry-run", "--json")
    told = {found["rollout_id"]: found for found in map(json.loads, out.splitlines())}
    assert code == 1
    assert (told[rollout]["advantages"], told[rollout]["flips"]) == ([0.5, -0.5], True)
    assert (told[other]["advantages"], told[other]["flips"]) == ([-0.5, 0.5], True)


def test_a_rollout_whose_verifier_is_not_known_is_said_not_to_be_scored(replay: Replay, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(b"".join(line + b"\n" for line in export_lines(recorded_run(1).log, {})))
    code, out, _ = replay("reverify", "--file", log, "--dry-run")
    assert code == 2
    assert "how 'calc_env' was configured" in " ".join(out.split())


def test_a_rollout_that_only_a_called_agent_was_scored_in_is_named_and_the_others_are_scored(replay: Replay) -> None:
    """R7: it makes the command fail only where there is nothing else."""
    delegating = GOLDEN / "delegating.jsonl"
    code, out, _ = replay("reverify", "--file", SOLVER, "--file", delegating, "--dry-run")
    assert code == 0
    assert "1 rollout scored again: 1 the same, 0 changed, 1 without a verifier of its own" in out
    assert "1 time: its verifier was asked by an agent that it called (solver), not by its own" in out
    code, out, _ = replay("reverify", "--file", delegating, "--dry-run", "--json")
    found = json.loads(out)
    assert (code, found["verdict"]) == (2, "not scored")


def score(rollout: str, was: float, reward: float | None, group: str = "g") -> Rescore:
    verdict = "same" if was == reward else "differs"
    return Rescore(rollout_id=rollout, group=group, verdict=verdict, was=was, reward=reward)  # type: ignore[arg-type]


def test_an_advantage_flips_where_a_rollout_was_better_than_its_group_and_is_worse() -> None:
    scores = compared([score("c", 0, 0), score("a", 1, 0), score("b", 0, 1), score("d", 0.5, 0.5, "other")])
    assert [each.rollout_id for each in scores] == ["c", "a", "b", "d"]
    found = changed(scores)
    assert [(change.rollout_id, change.flips) for change in found] == [("a", True), ("b", True)]
    assert found[0].advantages == pytest.approx((2 / 3, -1 / 3))


def test_the_advantages_of_equal_rewards_are_0_and_change_no_sign() -> None:
    """Though the mean of three times 0.7, or 0.2, is not exactly that in binary numbers."""
    scores = compared([score(rollout, 0.7, 0.2) for rollout in "abc"])
    assert [(each.advantages, each.flips) for each in scores] == [((0, 0), False)] * 3


def test_a_rollout_that_cannot_be_scored_keeps_its_reward_and_its_place_in_its_group() -> None:
    lost = Rescore(rollout_id="a", group="g", verdict="could not run", was=1, reason="the verifier raised")
    found = changed(compared([lost, score("b", 0, 1)]))
    assert [(change.rollout_id, change.now, change.advantages) for change in found] == [
        ("a", 1, (0.5, 0)),
        ("b", 1, (-0.5, 0)),
    ]


def test_no_advantage_is_told_of_a_part_of_a_group() -> None:
    (change,) = changed([score("a", 1, 0), score("b", 1, 1)])
    assert (change.rollout_id, change.advantages, change.flips) == ("a", None, False)
