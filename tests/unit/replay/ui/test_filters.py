"""The words of the table's filter."""

from datetime import UTC, datetime

import pytest

from replay.errors import Misused
from replay.ui.entries import Entry
from replay.ui.filters import filter_of, key_of


def entry(**fields: object) -> Entry:
    known = {"rollout_id": "r1-00002-01", "agent": "solver", "environment": "maths", "task": "What is 5 + 7?"}
    return Entry(**{**known, "started": datetime(2025, 1, 2, tzinfo=UTC), **fields})  # type: ignore[arg-type]


GOOD = entry(outcome="completed", reward=0.75, turns=3, policy=(4, 6), task_index=2)
BAD = entry(outcome="failed", error="deadline", duration_s=12.5)

CASES = [
    ("", True, True),
    ("reward>0.5", True, False),
    ("reward<=0.75 turns:3", True, False),
    ("reward>0.75", False, False),
    ("reward:none", False, True),
    ("reward!=none", True, False),
    ("-reward>0.5", False, True),
    ("outcome:fail", False, True),
    ("error=deadline", False, True),
    ("error!=deadline", True, False),
    ("version>=4 version<5", True, False),
    ("duration>10 agent:SOLV", False, True),
    ('"5 + 7"', True, True),
    ("00002 maths", True, True),
    ("-maths", False, False),
    ("deadline", False, True),
    ("http://x", False, False),
    ("started>2025-01-01 started<2025-01-03T00:30", True, True),
    ("started>=2025-01-02T00:00:01", False, False),
    ("started>=1735776000", True, True),
    ("answer:", False, False),
    ('"reward<"', False, False),
]


@pytest.mark.parametrize(("words", "good", "bad"), CASES)
def test_words_are_joined_by_and(words: str, good: bool, bad: bool) -> None:
    keep = filter_of(words)
    assert (keep(GOOD), keep(BAD)) == (good, bad)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("started>today", "started is a time in UTC, such as 2026-11-30 or 2026-11-30T12:30, and 'today' is none"),
        ("reward<much", "reward is a number, and 'much' is none"),
        ("agent>solver", "agent is a text: write agent:solver"),
        ("rewards>1", "nothing is called 'rewards'"),
        ("reward<", "reward< compares nothing: write it as one word, such as reward<0.5"),
        ("-reward>=", "reward is a number, and '=' is none"),
        ("reward < 0.5", "< compares nothing"),
        ("<0.5", "<0.5 compares nothing"),
        ("agent:", "agent: compares nothing"),
        ('agent:"two words', 'a quote is not closed in agent:"two'),
        ('"two words', 'a quote is not closed in "two'),
    ],
)
def test_what_makes_no_sense_is_said(words: str, why: str) -> None:
    with pytest.raises(Misused, match=why):
        filter_of(words)


def test_a_column_that_is_not_there_is_said() -> None:
    assert key_of("tokens")(entry(input_tokens=3, output_tokens=4)) == 7
    with pytest.raises(Misused, match="no column is called 'colour'"):
        key_of("colour")


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("started=2025-01-02", True),
        ("started:2025-01-02 -started=2025-01-03", True),
        ("started!=2025-01-02", False),
        ("started=2025-01-01", False),
        ("started=2025-01-02T10", True),
        ("started=2025-01-02T10:20", True),
        ("started=2025-01-02T11:20+01:00", True),
        ("started=2025-01-02T10:20:30Z", True),
        ("started=2025-01-02T10:20:31", False),
        ("started=2025-01-02T10:21", False),
        ("started=1735776000", False),
    ],
)
def test_a_day_an_hour_or_a_minute_is_all_of_it(words: str, kept: bool) -> None:
    """Nothing starts at midnight to the microsecond."""
    assert filter_of(words)(entry(started=datetime(2025, 1, 2, 10, 20, 30, 500_000, tzinfo=UTC))) == kept
