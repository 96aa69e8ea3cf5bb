"""A span of time is read as it is written, or refused."""

from datetime import timedelta

import pytest

from bus import LogConfig
from contracts.spans import read_span


@pytest.mark.parametrize(
    ("text", "span"),
    [("7d", timedelta(days=7)), ("12h", timedelta(hours=12)), ("30m", timedelta(minutes=30)), ("0d", timedelta())],
)
def test_days_hours_and_minutes_are_read(text: str, span: timedelta) -> None:
    assert read_span(text) == span


@pytest.mark.parametrize("text", ["", "7", "d", "-7d", "1.5h", "7 d", "7d\n", "\u0667d", "week", "P7D"])
def test_what_is_no_span_is_refused_with_what_to_say(text: str) -> None:
    with pytest.raises(ValueError, match="is no time: say 7d, 12h or 30m"):
        read_span(text)


@pytest.mark.parametrize("text", ["36501d", "999999999d"])
def test_what_reaches_back_before_any_date_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is more than 36500d"):
        read_span(text)


def test_the_age_of_a_log_is_a_span_and_not_zero() -> None:
    assert LogConfig().age_limit is None
    assert LogConfig(max_age="30m").age_limit == timedelta(minutes=30)
    for wrong in ("0m", "old"):
        with pytest.raises(ValueError, match=r"say 7d|at least 1m"):
            LogConfig(max_age=wrong)
