"""The grammar of subjects: one event, one subject, and no input that makes it another's."""

from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus import Subjects
from bus.headings import Heading, heading_of
from bus.subjects import check_subject, consumer_name, may_hold, rollout_of
from contracts.errors import ContractError, InvalidName
from contracts.events import Event
from contracts.ids import check_name

SUBJECTS = Subjects("jetgym", 4)
NAMES = st.from_regex(r"[A-Za-z0-9_-]{1,20}", fullmatch=True)
ANYTHING = st.text(max_size=20) | st.sampled_from(["*", ">", "a.b", "a b", "", "a\r\nPUB x 0\r\n\r\n", "\0", "r1.m_0"])


def literal(subject: str) -> bool:
    """Whether it could be sent."""
    try:
        check_subject(subject)
    except InvalidName:
        return False
    return True


@given(rollout=NAMES, key=NAMES, worker=NAMES, run=NAMES, instance=NAMES)
def test_each_form_names_its_rollout_at_its_place(rollout: str, key: str, worker: str, run: str, instance: str) -> None:
    """B13."""
    made = [
        SUBJECTS.request("models", instance, 8, rollout, key),
        SUBJECTS.reply(worker, rollout, key),
        SUBJECTS.ended(run, rollout),
        SUBJECTS.adopted(run, rollout, 2),
        SUBJECTS.revised(run, rollout, 1),
    ]
    partition = SUBJECTS.partition(rollout)
    for subject in made:
        assert literal(subject)
        assert rollout_of(subject) == rollout
        assert subject.startswith(f"jetgym.{partition}.")
        assert SUBJECTS.stream_of(subject) == SUBJECTS.stream(partition)
    assert len(set(made)) == len(made)


@given(rollout=NAMES, key=NAMES, other=NAMES)
def test_an_event_belongs_under_the_subject_of_its_rollout_and_call_alone(rollout: str, key: str, other: str) -> None:
    """B5, B13."""
    of_call = SUBJECTS.request("models", "policy", 8, rollout, key), SUBJECTS.reply(other, rollout, key)
    of_rollout = (
        SUBJECTS.ended(other, rollout),
        SUBJECTS.adopted(other, rollout, 2),
        SUBJECTS.revised(other, rollout, 1),
    )
    for subject in (*of_call, *of_rollout):
        event = Event(
            id="w-1", source="w", type="any", time=datetime.now(UTC), subject=subject, rolloutid=rollout, callkey=key
        )
        changed = msgspec.structs.replace
        assert may_hold(subject, event)
        assert not may_hold(subject, changed(event, subject=f"{subject}x"))
        assert not may_hold(subject, changed(event, rolloutid=f"{other}.{rollout}"))
        assert may_hold(subject, changed(event, rolloutid=other)) == (other == rollout)
        assert may_hold(subject, changed(event, callkey=other)) == (subject in of_rollout or other == key)


@given(rollout=ANYTHING, key=ANYTHING, worker=ANYTHING, run=ANYTHING)
def test_what_is_no_name_never_becomes_a_subject_that_can_be_sent(
    rollout: str, key: str, worker: str, run: str
) -> None:
    """B13: refused when the subject is made, or before it is sent."""
    makers: list[tuple[Callable[[], str], list[str]]] = [
        (lambda: SUBJECTS.request("models", "policy", 1, rollout, key), [rollout, key]),
        (lambda: SUBJECTS.reply(worker, rollout, key), [worker, rollout, key]),
        (lambda: SUBJECTS.ended(run, rollout), [run, rollout]),
    ]
    for make, parts in makers:
        try:
            sent = literal(make())
        except ContractError:
            sent = False
        try:
            named = all(check_name(part, "part") for part in parts)
        except InvalidName:
            named = False
        assert sent == named


@given(st.text(max_size=60))
def test_only_dotted_names_are_subjects(text: str) -> None:
    """B13."""
    tokens = text.split(".")
    expected = all(
        token and token.isascii() and token.replace("-", "_").replace("_", "a").isalnum() for token in tokens
    )
    assert literal(text) == expected


@pytest.mark.parametrize("name", ["", "a.b", "a b", "*", ">", "a\n", "ä", "a" * 65, "\x7f"])
def test_a_namespace_that_is_no_name_is_refused(name: str) -> None:
    """B13."""
    with pytest.raises(InvalidName):
        Subjects(name, 1)


@pytest.mark.parametrize(
    "subject",
    ["", "x", "jetgym.0.policy.m.1", "jetgym.0.deployment.run.r", "jetgym.0.reply.w.bad id.k", "a.b.c.d.e.f.g"],
)
def test_a_subject_without_a_rollout_has_none(subject: str) -> None:
    assert not rollout_of(subject)


def test_the_filters_of_a_history_do_not_overlap() -> None:
    """One event would be read twice where two of them matched it."""
    filters = [one.split(".") for one in SUBJECTS.history_of("r1")]
    made = [
        SUBJECTS.request("models", "rollout", 1, "r1", "m_0"),
        SUBJECTS.reply("reply", "r1", "r1"),
        SUBJECTS.ended("r1", "r1"),
        SUBJECTS.adopted("r1", "r1", 1),
        letter := SUBJECTS.dead(SUBJECTS.partition("r1"), "models", "r1", "r1", "9"),
        SUBJECTS.settled(letter),
    ]
    for subject in made:
        tokens = subject.split(".")
        fitting = [
            one
            for one in filters
            if len(one) == len(tokens) and all(want in ("*", got) for want, got in zip(one, tokens, strict=True))
        ]
        assert len(fitting) == 1, subject


def test_consumers_of_different_pools_have_different_names() -> None:
    names = [consumer_name("models", "a", 1), consumer_name("models", "a-1", 1), consumer_name("agents", "a", 1)]
    assert len(set(names)) == len(names)


def test_a_subject_says_what_it_was_made_of() -> None:
    partition = SUBJECTS.partition("r1")
    letter = SUBJECTS.dead(partition, "models", "policy", "r1", "9")
    for subject, heading in (
        (SUBJECTS.request("models", "policy", 1, "r1", "m_0"), Heading("request", "r1", "m_0", "models", "policy")),
        (SUBJECTS.reply("w1", "r1", "m_0"), Heading("reply", "r1", "m_0", worker="w1")),
        (SUBJECTS.ended("run", "r1"), Heading("ended", "r1", run="run")),
        (SUBJECTS.adopted("run", "r1", 2), Heading("adopted", "r1", "2", run="run")),
        (SUBJECTS.revised("run", "r1", 3), Heading("revised", "r1", "3", run="run")),
        (SUBJECTS.cancel("run", "r1"), Heading("cancel", "r1", run="run")),
        (SUBJECTS.cancel_run(0, "run"), Heading("cancel", run="run")),
        (letter, Heading("dead", "r1", "9", "models", "policy")),
        (SUBJECTS.settled(letter), Heading("settled", "r1", "9", "models", "policy")),
        (SUBJECTS.dead(0, "feed", "trainer", "_", "9"), Heading("dead", "", "9", "feed", "trainer")),
        (SUBJECTS.feed("run", "trainer", 7), Heading("feed", "", "7", "feed", "trainer", run="run")),
        (SUBJECTS.policy("policy", 7), Heading("other")),
        (SUBJECTS.deployment("run", "run"), Heading("other")),
        ("anything", Heading("other")),
    ):
        assert heading_of(subject) == heading
