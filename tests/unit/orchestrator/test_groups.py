"""The groups of a trainer's run: after any steps, what is counted is what is there."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.groups import End, Groups, OpenGroup
from orchestrator.submission import epoch_of, new_group, place_of

START = datetime(2025, 1, 1, tzinfo=UTC)


def group(number: int, size: int) -> OpenGroup:
    asked = START + timedelta(seconds=number)
    name = f"run-e0-{number:016x}"
    return new_group(name, agent="solver", task_index=number, epoch=0, version=number, asked=asked, size=size)


def end(seconds: int, reward: float | None = 1.0) -> End:
    outcome = "rollout.failed" if reward is None else "rollout.completed"
    return End(outcome, reward, "", "", None, START + timedelta(seconds=seconds))  # type: ignore[arg-type]


def check(groups: Groups) -> None:
    members = [(each, member) for each in groups.open.values() for member in each.members]
    assert groups.unfinished_rollouts == sum(member.end is None for _, member in members)
    assert groups.unfinished_groups == len(groups.unfinished) == len(groups.open) - groups.waiting
    assert set(groups.ended) == {
        each.first_id(member) for each, member in members if member.end is not None and not member.taken
    }
    assert set(groups.ready) == {each.id for each in groups.open.values() if each.ended and each.left}
    assert [unit.group.id for unit in groups.units(single=False)] == list(groups.ready)
    assert not any(all(member.gone for member in each.members) for each in groups.open.values())
    left = [len(each.members) for each, member in members if not member.gone]
    to_deliver = [len(each.members) for each, member in members if not member.taken]
    assert (groups.uncommitted, groups.to_deliver) == (Counter(left), Counter(to_deliver))
    assert groups.groups_to_deliver == sum(bool(each.left) for each in groups.open.values())
    in_hand = [(each, member) for each, member in members if member.taken and not member.gone]
    assert groups.earlier == Counter(len(each.members) for each, member in in_hand if member.earlier)
    assert groups.in_hand == Counter(len(each.members) for each, member in in_hand if not member.earlier)
    assert groups.undelivered(single=True).total() == len(to_deliver)
    assert groups.undelivered(single=False).total() == groups.groups_to_deliver


@given(seed=st.integers(0, 1_000_000), single=st.booleans())
def test_whatever_is_asked_ends_is_delivered_committed_and_dropped_the_counts_are_right(
    seed: int, single: bool
) -> None:
    """F7: also where rollouts are taken one by one, and their groups later whole."""
    chance, groups, batches, committed = Random(seed), Groups(), [], Counter[int]()
    for step in range(60):
        match chance.randrange(7):
            case 0:
                groups.add(group(step, chance.randint(1, 3)))
            case 1 | 2 if groups.unfinished:
                one = chance.choice(groups.unfinished)
                groups.end(one, chance.choice(one.unfinished), end(step))
            case 3:
                units = list(groups.units(single=single and step < 40))[: chance.randint(1, 2)]
                if units:
                    groups.deliver(units)
                    batches.append(units)
            case 4 if batches:
                units = batches.pop(chance.randrange(len(batches)))
                committed.update(len(unit.group.members) for unit in units for m in unit.members if not m.earlier)
                groups.remove(units, trained=True)
            case 5:
                groups.remove(list(groups.units(single=single))[:1], trained=False)
            case 6:
                groups.end_version(chance.choice((None, 0, 1, 3)))
                committed.clear()
        check(groups)
        assert groups.committed_now == committed


@given(seed=st.integers(0, 1_000_000), single=st.booleans())
def test_what_ends_between_two_looks_is_among_the_latest_of_so_many(seed: int, single: bool) -> None:
    """Whatever else was taken meanwhile; a group is whole with its last rollout."""
    chance, groups = Random(seed), Groups()
    seen: set[tuple[str, ...]] = set()
    arrived = 0
    for step in range(60):
        match chance.randrange(5):
            case 0:
                groups.add(group(step, chance.randint(1, 3)))
            case 1 | 2 | 3 if groups.unfinished:
                one = chance.choice(groups.unfinished)
                groups.end(one, chance.choice(one.unfinished), end(step))
            case 4:
                units = list(groups.units(single=single))
                groups.remove(chance.sample(units, min(len(units), 2)), trained=False)
        if chance.random() < 0.3:
            latest = {unit.names for unit in groups.latest(groups.arrived - arrived, single=single)}
            there = {unit.names for unit in groups.units(single=single)}
            assert there - seen <= latest <= there
            seen, arrived = there, groups.arrived


def test_units_come_in_the_order_of_ends_and_name_what_they_are() -> None:
    groups, first, second = Groups(), group(1, 2), group(2, 2)
    groups.add(first)
    groups.add(second)
    for one, index in ((second, 1), (first, 0), (second, 0), (first, 1)):
        groups.end(one, one.members[index], end(1))
    assert [unit.names for unit in groups.units(single=False)] == [(second.id,), (first.id,)]
    singles = list(groups.units(single=True))
    assert [unit.names for unit in singles[:2]] == [(f"{second.id}-01",), (f"{first.id}-00",)]
    groups.deliver(singles[:1])
    assert [unit.names for unit in groups.units(single=False)] == [(f"{second.id}-00",), (first.id,)]


def test_a_rollout_id_says_its_place_in_its_own_run_and_in_no_other() -> None:
    name = "my-run-e12-00000000000000ab"
    assert place_of("my-run", f"{name}-07") == (name, 7, 0)
    assert place_of("my-run", f"{name}-107-a2") == (name, 107, 2)
    assert epoch_of(name) == 12
    for run, rollout in (("my", f"{name}-07"), ("my-run", "r1129-1612-x7k2-00003-01"), ("run", f"{name}-07")):
        assert place_of(run, rollout) is None


def test_what_is_in_hand_when_a_version_ends_was_trained_on_as_far_as_its_share_goes() -> None:
    """Three batches of one group each in hand, one committed, two a version: the first in hand is of the version."""
    groups = Groups()
    for number in range(4):
        groups.add(group(number, 2))
    for each in list(groups.open.values()):
        for member in each.members:
            groups.end(each, member, end(1))
    batches = [[unit] for unit in groups.units(single=False)]
    for batch in batches:
        groups.deliver(batch)
    groups.remove(batches[0], trained=True)
    groups.end_version(2)
    assert (groups.committed_now, groups.earlier, groups.in_hand) == (Counter(), Counter({2: 2}), Counter({2: 4}))
    for batch in batches[:0:-1]:
        groups.remove(batch, trained=True)
    assert groups.committed_now == Counter({2: 4})
    assert not groups.batches
