"""The charts of a run."""

from datetime import UTC, datetime, timedelta

from replay.ui.entries import Entry
from replay.ui.series import charts

START = datetime(2025, 1, 2, tzinfo=UTC)


def entry(begun: float, took: float | None, reward: float | None = None, **fields: object) -> Entry:
    outcome = "in flight" if took is None else "failed" if reward is None else "completed"
    started = START + timedelta(seconds=begun)
    return Entry(rollout_id=f"r1-{begun}", started=started, duration_s=took, reward=reward, outcome=outcome, **fields)  # type: ignore[arg-type]


def test_what_is_told_adds_up() -> None:
    rows = [entry(second, 10, second % 2, queue_s=2.0) for second in range(90)] + [entry(95, 5), entry(99, None)]
    told = charts(rows, 7)
    width = told.span_s / len(told.times)
    assert (told.version, told.total, told.outcomes) == (7, 92, {"completed": 90, "failed": 1, "in flight": 1})
    assert round(sum(told.ended_per_s) * width) == 91
    assert round(sum(told.failed_per_s) * width) == 1
    assert told.in_flight[-1] == 6  # of the last six seconds, not of their end
    assert max(told.in_flight) == 10
    assert max(told.waiting) == 2
    assert told.mean_reward == 0.5
    assert told.rewards is not None
    assert sum(told.rewards.counts) == 90
    assert told.duration_s == (10.0, 10.0, 10.0)


def test_what_was_in_flight_between_two_marks_of_the_axis_is_told() -> None:
    """A run of quick rollouts that waits for a slow one had many at once, however wide a bin is."""
    told = charts([entry(0.1, 0.2, 1.0, queue_s=0.1) for _ in range(12)] + [entry(0.1, 60, 1.0)], 1)
    assert told.in_flight == [13] + [1] * (len(told.times) - 1)
    assert told.waiting == [12] + [0] * (len(told.times) - 1)


def test_a_bin_in_which_nothing_ended_has_no_reward() -> None:
    told = charts([entry(0, 1, 1.0), entry(0, 100, 0.0)], 1)
    assert [value for value in told.reward if value is not None] == [1.0, 0.0]
    assert told.reward[5] is None


def test_staleness_is_how_far_the_oldest_token_is_behind_what_is_known_by_then() -> None:
    rows = [
        entry(0, 10, 1.0, policy=(1, 1), asked_version=1),
        entry(0, 40, 1.0, policy=(1, 2), asked_version=1),
        entry(30, 70, 1.0, policy=(3, 4), asked_version=3),
    ]
    told = charts(rows, 1)
    assert [lag for lag in told.stalest if lag is not None] == [0, 2, 1]
    assert (told.versions[0], told.versions[-1]) == (1, 4)


def test_where_no_version_is_known_there_is_no_staleness() -> None:
    assert set(charts([entry(0, 1, 1.0)], 1).staleness) == {None}


def test_a_run_without_a_rollout_has_charts() -> None:
    told = charts([], 0)
    assert (told.total, told.mean_reward, told.rewards, told.started) == (0, None, None, None)


def test_a_live_run_is_told_up_to_now() -> None:
    told = charts([entry(0, None)], 1, 4, START + timedelta(seconds=60))
    assert (told.span_s, told.in_flight[-1], told.asked) == (60, 1, 4)
