"""What trials of an agent in several processes tell of it."""

from pathlib import Path

from components.agents.base import AgentConfig
from replay.lint import compared
from replay.trials import Made, Trace, Trial, Trials
from tests.unit.replay.examples import CALC, Delegating, calculator, task
from tests.unit.replay.recorder import Recorder
from tests.unit.replay.test_cli import Replay, replay, write

__all__ = ["replay"]


def trace(*said: str) -> Trace:
    calls = [
        Made(
            key=f"m_{place}",
            target="model.requested to models/policy",
            data=b'"%s"' % text.encode(),
            file="f",
            line=place,
        )
        for place, text in enumerate(said)
    ]
    return Trace(calls=calls, ended=b"", file="f", line=1)


def process(first: Trace, again: Trace) -> Trials:
    return Trials(trials=[Trial(seed=0, first=first, again=again)], suspects=[])


def test_what_differs_earlier_for_another_reason_is_told_too_and_what_may_follow_from_it_is_not() -> None:
    """A set of strings and the clock: the order of the one is not hidden by the other, which differs in every run."""
    same_seed = process(trace("alpha", "at 1", "x"), trace("alpha", "at 2", "y"))
    other_seed = process(trace("beta", "at 3", "z"), trace("beta", "at 4", "z"))
    found = list(compared("r1", [same_seed, same_seed, other_seed, other_seed]))
    assert [(finding.call_key, finding.why.partition(":")[0]) for finding in found] == [
        ("m_0", "it differs with the hash seed"),
        ("m_1", "it differs from one run to the next in one process"),
    ]
    assert list(compared("r1", [process(trace("alpha"), trace("alpha"))] * 4)) == []


def test_what_differs_later_for_another_reason_alone_is_told_too() -> None:
    """The clock in one call does not hide the order of a set in the next, and what holds both is not told again."""
    clock = iter(range(100))

    def again(words: str) -> Trace:
        return trace("x", f"at {next(clock)}", words, f"{words} {next(clock)}")

    processes = [process(again(words), again(words)) for words in ("ab", "ab", "ba", "ba")]
    found = list(compared("r1", processes))
    assert [(finding.call_key, finding.why.partition(":")[0]) for finding in found[:1] + found[-1:]] == [
        ("m_1", "it differs from one run to the next in one process"),
        ("m_2", "it differs with the hash seed"),
    ]
    assert {finding.call_key for finding in found} == {"m_1", "m_2"}


def test_an_agent_that_only_others_call_is_tried_where_it_was_called(replay: Replay, tmp_path: Path) -> None:
    recorder = Recorder({**CALC, "boss": (Delegating, AgentConfig(model="policy"))}, calculator)
    recorder.deployment({"calc": "simple_agent", "boss": "elsewhere"}, {"calc": "1", "boss": "2"})
    recorder.rollout("r1-00000-00", "boss", task())
    log = write(tmp_path / "log.jsonl", recorder)
    code, out, err = replay("lint", "calc", "--file", log, "--orders", "1")
    assert (code, out.split("  ")[0]) == (0, "calc always the same"), err
    code, _, err = replay("lint", "nobody", "--file", log)
    assert (code, "no rollout of agent 'nobody' is recorded" in err) == (2, True)
