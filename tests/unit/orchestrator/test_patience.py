"""A wait for a batch: what renews it, and what ends it."""

from datetime import UTC, datetime
from itertools import count

from orchestrator.groups import End, Groups, OpenGroup, Unit
from orchestrator.patience import AT_A_TIME, IN_VAIN, Patience
from orchestrator.submission import new_group

START = datetime(2025, 1, 1, tzinfo=UTC)
NUMBERS = count()


def asked(groups: Groups, size: int = 2) -> OpenGroup:
    group = new_group(
        f"run-e0-{next(NUMBERS):016x}", agent="solver", task_index=0, epoch=0, version=0, asked=START, size=size
    )
    groups.add(group)
    return group


def ended(groups: Groups, group: OpenGroup, reward: float | None = 1.0) -> Unit:
    """All of its rollouts have ended."""
    for member in group.unfinished:
        failed = End("rollout.failed", None, "model_error", "no such model", None, START)
        done = End("rollout.completed", reward, "", "", None, START)
        groups.end(group, member, failed if reward is None else done)
    return Unit(group, group.left)


def drop(groups: Groups, patience: Patience, *units: Unit) -> None:
    patience.in_vain({"no_reward": units})
    groups.remove(units, trained=False)


def test_a_wait_goes_on_while_more_has_ended_than_ever_and_not_while_everything_is_dropped() -> None:
    """F1: the ends of what is dropped are no progress, however many there are."""
    groups = Groups()
    patience = Patience(groups, 0, 10.0, now=0.0)
    for now in (1.0, 2.0, 3.0):
        failed = ended(groups, asked(groups), None)
        patience.look(0, now)
        drop(groups, patience, failed)
        patience.look(0, now)
    assert patience.deadline == 11.0
    assert patience.dropped == {"no_reward": 6}
    assert patience.last_failed.endswith("-01: model_error: no such model")
    ended(groups, asked(groups, size=3))
    patience.look(0, 4.0)
    assert patience.deadline == 14.0
    patience.look(0, 5.0)
    assert patience.deadline == 14.0
    patience.look(1, 6.0)
    assert patience.deadline == 16.0, "the trainer goes on"


def test_so_many_groups_in_vain_in_a_row_end_a_wait_and_one_of_use_begins_anew() -> None:
    """Asking is bounded where everything fails at once; a larger number may fail where more were open at a time."""
    groups = Groups()
    patience = Patience(groups, 0, 10.0, now=0.0)
    for _ in range(IN_VAIN - 1):
        drop(groups, patience, ended(groups, asked(groups), None))
    assert not patience.exhausted
    ended(groups, asked(groups))
    patience.look(0, 1.0)
    for number in range(IN_VAIN):
        assert not patience.exhausted, number
        drop(groups, patience, ended(groups, asked(groups), None))
    assert patience.exhausted
    for _ in range(IN_VAIN // AT_A_TIME + 1):
        asked(groups)
    drop(groups, patience)
    assert not patience.exhausted
