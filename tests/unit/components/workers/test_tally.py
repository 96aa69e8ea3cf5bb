"""What a rollout used is counted from its replies, whatever stands in them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from components.workers.tally import Tally
from contracts.events import Event
from contracts.rollouts import ModelStats, RolloutFailure, RolloutResult, RolloutStats, Usage, counted
from contracts.tokens import Capture

START = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)


def reply(what: str, *, elapsed: float = 0.0, source: str = "models/policy/policy-0-abc") -> Event:
    return Event(id="e", source=source, type=what, time=START, subject="s", elapsed=elapsed)


def usage(**tokens: Any) -> bytes:
    return msgspec.json.encode({"output": [], "usage": tokens})


def test_the_oldest_and_the_newest_policy_version_are_those_of_any_call_in_it() -> None:
    tally = Tally(START)
    tally.add(reply("model.replied"), usage())
    assert tally.stats(START, START).policy is msgspec.UNSET
    assert b'"policy":' not in msgspec.json.encode(tally.stats(START, START))
    for versions in ((4, 5), (3, 3)):
        tally.add(msgspec.structs.replace(reply("model.replied"), policy=versions), usage())
    nested = msgspec.structs.replace(tally.stats(START, START), policy=(4, 9))
    result = RolloutResult(response=msgspec.Raw(b"{}"), reward=1.0, stats=nested)
    tally.add(reply("agent.replied"), msgspec.json.encode(result))
    assert tally.stats(START, START).policy == (3, 9)


def test_calls_with_tokens_and_calls_whose_tokens_were_refused_are_told_apart() -> None:
    """T16: a policy version alone is neither; a nested rollout's count too."""
    tally = Tally(START)
    for capture in (
        Capture(policy=(1, 1)),
        Capture(prompt=b"1234", generated=b"1234", logprobs=b"1234"),
        Capture(flaw='it said "generated": and "flaw": itself'),
    ):
        raw = msgspec.Raw(msgspec.json.encode(capture))
        tally.add(msgspec.structs.replace(reply("model.replied"), capture=raw), usage())
    stats = tally.stats(START, START)
    assert (stats.captured, stats.flawed) == (1, 1)
    result = RolloutResult(response=msgspec.Raw(b"{}"), reward=1.0, stats=stats)
    tally.add(reply("agent.replied"), msgspec.json.encode(result))
    assert (tally.stats(START, START).captured, tally.stats(START, START).flawed) == (2, 2)


def test_each_model_is_counted_for_itself_where_there_are_several() -> None:
    """A judge's tokens and versions are not those of the policy that is trained, also in a called agent."""
    tally, caller = Tally(START), Tally(START)
    taken = msgspec.Raw(msgspec.json.encode(Capture(prompt=b"1234", generated=b"1234", logprobs=b"1234")))
    first = msgspec.structs.replace(reply("model.replied"), capture=taken, policy=(5, 6))
    tally.add(first, usage(output_tokens=3))
    one = msgspec.json.encode(tally.stats(START, START))
    assert b'"by_model"' not in one
    assert b'"generated"' not in one
    judged = reply("model.replied", source="models/judge/j")
    tally.add(msgspec.structs.replace(judged, capture=taken, policy=(0, 0), generated=200), usage())
    tally.add(judged, usage(output_tokens=7))
    nested = RolloutResult(response=msgspec.Raw(b"{}"), reward=1.0, stats=tally.stats(START, START))
    caller.add(reply("agent.replied"), msgspec.json.encode(nested))
    for stats in (tally.stats(START, START), caller.stats(START, START)):
        assert stats.policy == (0, 6)
        assert counted(stats, ["policy"]) == ModelStats(captured=1, generated=3, policy=(5, 6))
        assert counted(stats, ["judge"]) == ModelStats(captured=1, generated=200, policy=(0, 0))
        assert counted(stats, ["judge", "policy"]) == ModelStats(captured=2, generated=203, policy=(0, 6))
        assert counted(stats, ["another"]) == ModelStats()


def test_tokens_are_counted_from_what_was_captured_and_else_as_the_engine_counts_them() -> None:
    taken = msgspec.Raw(msgspec.json.encode(Capture(prompt=b"1234", generated=b"1234", logprobs=b"1234")))
    tally = Tally(START)
    tally.add(reply("model.replied"), usage(output_tokens=5))
    assert counted(tally.stats(START, START), ["policy"]) == ModelStats(generated=5)
    for captured in ({"capture": taken}, {"captureref": "sha256:ab"}):
        tally.add(msgspec.structs.replace(reply("model.replied"), generated=9, **captured), usage())
    read = msgspec.json.decode(msgspec.json.encode(tally.stats(START, START)), type=RolloutStats)
    assert counted(read, ["policy"]) == ModelStats(captured=2, generated=18)
    assert counted(read, ["judge"]) == ModelStats()


def test_a_log_that_does_not_tell_models_apart_has_all_that_was_counted_of_each() -> None:
    before = b'"turns":2,"models":["policy","judge"],"captured":2,"policy":[1,2]}'
    times = b'{"usage":{"output_tokens":9},"timings":{"queue_s":0,"total_s":0},'
    stats = msgspec.json.decode(times + before, type=RolloutStats)
    assert counted(stats, ["policy"]) == ModelStats(captured=2, generated=9, policy=(1, 2))


def test_turns_tools_tokens_and_seconds_add_up() -> None:
    tally = Tally(START + timedelta(seconds=2))
    tally.add(reply("model.replied", elapsed=1.5), usage(input_tokens=10, output_tokens=5, total_tokens=15))
    tally.add(reply("tool.replied", elapsed=0.25, source="resources/stage/s"), b"{}")
    tally.add(reply("tool.failed", elapsed=0.25, source="resources/stage/s"), b"{}")
    tally.add(reply("model.replied", source="models/judge/j"), usage(input_tokens=1, output_tokens=1, total_tokens=2))
    tally.add(reply("verify.replied", elapsed=0.5, source="resources/stage/s"), b"{}")
    tally.add(reply("timer.replied", source="agents/puppet/p"), b"null")
    captured = msgspec.structs.replace(reply("model.replied"), capture=msgspec.Raw(b'{"generated":"AAAA"}'))
    tally.add(captured, usage())
    tally.add(msgspec.structs.replace(reply("model.replied"), captureref="sha256:ab"), usage())
    stats = tally.stats(START, START + timedelta(seconds=9))
    assert stats.usage == Usage(input_tokens=11, output_tokens=6, total_tokens=17)
    assert (stats.turns, stats.tool_calls, stats.models) == (4, 2, ("policy", "judge"))
    assert stats.captured == 2
    times = stats.timings
    assert (times.queue_s, times.total_s, times.model_s, times.tools_s, times.verify_s) == (2.0, 9.0, 1.5, 0.5, 0.5)


def test_what_a_called_agent_used_counts_for_its_caller_whether_it_failed_or_not() -> None:
    nested, caller = Tally(START), Tally(START)
    for tally in (nested, caller):
        tally.add(reply("model.replied", elapsed=1.5), usage(input_tokens=10, output_tokens=5, total_tokens=15))
        tally.add(reply("tool.replied", elapsed=0.25, source="resources/stage/s"), b"{}")
        tally.add(reply("verify.replied", elapsed=0.5, source="resources/stage/s"), b"{}")
    used = nested.stats(START, START)
    result = RolloutResult(response=msgspec.Raw(b"{}"), reward=1.0, stats=used)
    caller.add(reply("agent.replied", source="agents/helper/h"), msgspec.json.encode(result))
    failed = RolloutFailure(kind="agent_error", message="m", stats=used)
    caller.add(reply("agent.failed", source="agents/helper/h"), msgspec.json.encode(failed))
    caller.add(reply("agent.failed", source="agents/helper/h"), b'{"kind": "poison", "message": "m"}')
    caller.add(reply("agent.replied", source="agents/helper/h"), b"[]")
    stats = caller.stats(START, START)
    assert stats.usage == Usage(input_tokens=30, output_tokens=15, total_tokens=45)
    assert (stats.turns, stats.tool_calls, stats.models) == (3, 3, ("policy",))
    assert (stats.timings.model_s, stats.timings.tools_s, stats.timings.verify_s) == (4.5, 0.75, 1.5)


def test_a_failed_model_call_takes_time_and_is_no_turn() -> None:
    tally = Tally(START)
    tally.add(reply("model.failed", elapsed=3.0), b'{"kind": "unavailable", "message": "away"}')
    stats = tally.stats(START, START)
    assert (stats.turns, stats.models, stats.timings.model_s) == (0, (), 3.0)


@pytest.mark.parametrize(
    "data",
    [
        b'{"usage": null}',
        b'{"usage": {"input_tokens": null}}',
        b'{"usage": {"input_tokens": "many"}}',
        b'{"usage": {"input_tokens": 1.5}}',
        b'{"usage": []}',
        b"[]",
        b"",
        b'"\xff"',
    ],
)
def test_a_reply_whose_usage_cannot_be_read_is_a_turn_without_tokens(data: bytes) -> None:
    tally = Tally(START)
    tally.add(reply("model.replied", source="by hand"), data)
    stats = tally.stats(START, START)
    assert (stats.turns, stats.usage, stats.models) == (1, Usage(), ("by hand",))


def test_clocks_that_disagree_give_no_negative_times() -> None:
    times = Tally(START - timedelta(seconds=3)).stats(START, START - timedelta(seconds=1)).timings
    assert (times.queue_s, times.total_s) == (0.0, 0.0)
