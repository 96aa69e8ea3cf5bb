"""Dead letters are read back, asked for again as a new attempt, or dropped: by events, and once."""

import asyncio

import msgspec
import pytest

from bus import Bus, DeadLetter
from bus.deadletter import Reason
from bus.letters import Letter, letter, letters
from bus.overview import overview
from components.workers.cancellations import cancel, cancel_run
from contracts.events import Event
from contracts.ids import ROOT_CALL
from contracts.rollouts import RolloutFailure, RolloutRequest
from orchestrator.attempts import NotAgain, ask_again, asked_again
from orchestrator.audit import audit
from orchestrator.dead import document, drop, requeue
from tests.bus.events import models, request, take

RUN = "run"


async def ask(bus: Bus, rollout: str) -> Event:
    """The request of a rollout, in the log."""
    asked = RolloutRequest(task=msgspec.Raw(b'{"n":1}'), agent="solver", run_id=RUN, task_index=3)
    event = bus.event(
        "rollout.requested",
        bus.subjects.request("agents", "solver", 1, rollout, ROOT_CALL),
        msgspec.json.encode(asked),
        rolloutid=rollout,
        callkey=ROOT_CALL,
        replyto=bus.subjects.ended(RUN, rollout),
    )
    await bus.publish(event)
    return event


async def end(bus: Bus, rollout: str, outcome: str = "failed") -> None:
    data = msgspec.json.encode(RolloutFailure(kind="poison", message="exhausted"))
    await bus.publish(bus.event(f"rollout.{outcome}", bus.subjects.ended(RUN, rollout), data, rolloutid=rollout))


async def bury(
    bus: Bus, event: Event, kind: str = "agents", name: str = "solver", *, reason: Reason = "exhausted", seq: int = 1
) -> Letter:
    """A dead letter of this event."""
    raw = msgspec.json.encode(event)
    dead = DeadLetter(
        reason=reason, message="gone", subject=event.subject, seq=seq, num_delivered=21, raw=raw, event=event
    )
    await bus.dead_letter(dead, kind, name)
    return [found async for found in letters(bus)][-1]


async def again(bus: Bus, rollout: str) -> tuple[Event, RolloutRequest]:
    found = await bus.last(bus.subjects.request("agents", "solver", 1, rollout, ROOT_CALL))
    assert found is not None
    return found.event, msgspec.json.decode(found.event.data, type=RolloutRequest)


async def test_a_letter_is_found_by_its_id_and_holds_the_original_bytes(bus: Bus) -> None:
    dead = await bury(bus, await ask(bus, "run-0"))
    found = await letter(bus, dead.id)
    assert found == dead
    shown = document(dead, whole=True)
    assert (shown.id, shown.pool, shown.kind, shown.rollout) == ("0-2", "solver", "agents", "run-0")
    assert shown.event == msgspec.Raw(dead.data.raw)
    for other in ("0-1", "0-3", "1-2", "x", "0-"):
        assert await letter(bus, other) is None


async def test_bytes_that_are_no_event_are_shown_as_they_are(bus: Bus) -> None:
    await bus._connection.request(bus.subjects.request("models", "policy", 1, "run-0", "m_0"), b"\xff")
    pool = await models(bus)
    await bus.publish(request(bus, "run-1"))
    await take(pool)
    async with asyncio.timeout(20):
        while not (found := [document(each, whole=True) async for each in letters(bus)]):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert (found[0].reason, found[0].event, found[0].raw_base64) == ("undecodable", None, "/w==")


async def test_requeueing_asks_for_a_new_attempt_of_the_rollout_that_names_its_parent(bus: Bus) -> None:
    dead = await bury(bus, await ask(bus, "run-0"))
    await end(bus, "run-0")
    assert await requeue(bus, dead) == "run-0-a1"
    event, asked = await again(bus, "run-0-a1")
    assert (asked.attempt, asked.parent, asked.task_index, asked.task) == (1, "run-0", 3, msgspec.Raw(b'{"n":1}'))
    assert (event.causationid, event.replyto) == (dead.recorded.event.id, bus.subjects.ended(RUN, "run-0-a1"))
    first = (await again(bus, "run-0"))[1]
    assert await asked_again(bus, "run-0", first) == ("run-0-a1", asked)
    assert await asked_again(bus, "run-0-a1", asked) is None
    state = await overview(bus)
    assert (state.requested, state.ended, state.dead) == (2, 1, 0)
    found = await audit(bus, RUN)
    assert (found.balanced, found.requested, found.failed, found.in_flight, found.again) == (True, 2, 1, 1, 1)


async def test_the_attempt_after_that_is_named_after_the_first_rollout(bus: Bus) -> None:
    await ask(bus, "run-0")
    await end(bus, "run-0")
    await requeue(bus, await bury(bus, request(bus, "run-0"), "models", "policy"))
    event, _ = await again(bus, "run-0-a1")
    await end(bus, "run-0-a1")
    assert await requeue(bus, await bury(bus, event, seq=2)) == "run-0-a2"
    _, asked = await again(bus, "run-0-a2")
    assert (asked.attempt, asked.parent) == (2, "run-0-a1")


async def test_the_letter_of_an_attempt_that_another_followed_asks_for_one_after_the_latest(bus: Bus) -> None:
    """All attempts failed, and each left a letter: what is said to be asked for is under way, whichever is named."""
    event = await ask(bus, "run-0")
    dead = []
    for number, rollout in enumerate(["run-0", "run-0-a1", "run-0-a2"]):
        dead.append(await bury(bus, request(bus, rollout), "resources", "stage", seq=10 + number))
        await end(bus, rollout)
        if number < 2:
            await ask_again(bus, rollout, event.id)
    assert await requeue(bus, dead[0]) == "run-0-a3"
    assert (await again(bus, "run-0-a3"))[1].parent == "run-0-a2"
    assert await requeue(bus, dead[2]) == "run-0-a3"
    assert await bus.last(bus.subjects.ended(RUN, "run-0-a3")) is None
    await end(bus, "run-0-a3", "completed")
    with pytest.raises(NotAgain, match="rollout run-0-a3 ended as completed, it did not fail"):
        await requeue(bus, dead[1])
    assert (await overview(bus)).dead == 1


@pytest.mark.parametrize("whole_run", [True, False], ids=["its run", "its first attempt"])
async def test_what_is_cancelled_is_not_asked_for_again(bus: Bus, whole_run: bool) -> None:
    """It would end as cancelled at once: a cancellation is for good."""
    await ask(bus, "run-0")
    await end(bus, "run-0")
    await requeue(bus, await bury(bus, request(bus, "run-0"), "models", "policy"))
    event, _ = await again(bus, "run-0-a1")
    await end(bus, "run-0-a1")
    await (cancel_run(bus, RUN, "wrong key") if whole_run else cancel(bus, RUN, "run-0", "wrong key"))
    with pytest.raises(NotAgain, match=r"was cancelled \(wrong key\), and so would be each further attempt"):
        await requeue(bus, await bury(bus, event, seq=2))
    assert (await overview(bus)).dead == 1


async def test_two_letters_of_one_rollout_ask_once_and_a_letter_is_decided_about_once(bus: Bus) -> None:
    await ask(bus, "run-0")
    await end(bus, "run-0")
    first = await bury(bus, request(bus, "run-0"), "models", "policy")
    second = await bury(bus, request(bus, "run-0", "m_1"), "models", "policy", seq=2)
    assert await requeue(bus, first) == await requeue(bus, second) == "run-0-a1"
    settled = await letter(bus, first.id)
    assert settled is not None
    with pytest.raises(NotAgain, match=r"it was requeued at .* UTC, as run-0-a1"):
        await requeue(bus, settled)
    with pytest.raises(NotAgain, match="it was requeued"):
        await drop(bus, settled)
    with pytest.raises(NotAgain, match="somebody requeued it meanwhile"):
        await drop(bus, second)


async def test_a_dropped_letter_stays_in_the_log_and_is_counted_no_more(bus: Bus) -> None:
    dead = await bury(bus, await ask(bus, "run-0"))
    await end(bus, "run-0")
    await drop(bus, dead)
    assert (await overview(bus)).dead == 0
    (found,) = [each async for each in letters(bus)]
    assert document(found, whole=False).decision == "dropped"
    with pytest.raises(NotAgain, match="it was dropped"):
        await requeue(bus, found)
    with pytest.raises(NotAgain, match="somebody dropped it meanwhile; run-0-a1 is asked for all the same"):
        await requeue(bus, dead)


@pytest.mark.parametrize(
    ("outcome", "said"),
    [("", "has not ended"), ("completed", "ended as completed, it did not fail"), ("cancelled", "ended as cancelled")],
)
async def test_only_what_failed_is_asked_for_again(bus: Bus, outcome: str, said: str) -> None:
    dead = await bury(bus, await ask(bus, "run-0"))
    if outcome:
        await end(bus, "run-0", outcome)
    with pytest.raises(NotAgain, match=said):
        await requeue(bus, dead)
    assert (await overview(bus)).dead == 1


@pytest.mark.parametrize(
    ("kind", "said"), [("feed", "an end that the feed could not read"), ("reply", "it is a reply: it cannot be asked")]
)
async def test_ends_and_replies_are_not_asked_for_again_and_it_is_said_why(bus: Bus, kind: str, said: str) -> None:
    event = await ask(bus, "run-0")
    await end(bus, "run-0")
    with pytest.raises(NotAgain, match=said):
        await requeue(bus, await bury(bus, event, kind, "trainer"))


async def test_a_request_that_cannot_be_read_is_not_asked_for_again(bus: Bus) -> None:
    event = bus.event(
        "rollout.requested",
        bus.subjects.request("agents", "solver", 1, "run-0", ROOT_CALL),
        b'{"task": {}}',
        rolloutid="run-0",
        callkey=ROOT_CALL,
        replyto=bus.subjects.ended(RUN, "run-0"),
    )
    await bus.publish(event)
    with pytest.raises(NotAgain, match=r"the request of rollout run-0 cannot be read: .*agent"):
        await requeue(bus, await bury(bus, event, reason="undecodable"))
    with pytest.raises(NotAgain, match="the request of rollout run-9 is not in the log"):
        await requeue(bus, await bury(bus, request(bus, "run-9"), "models", "policy", seq=2))


async def test_a_letter_whose_data_is_gone_hides_no_other_and_can_be_dropped(bus: Bus) -> None:
    """As after a power cut that took it: it is one of those that are listed."""
    large = await bury(bus, bus.event("any", "any.0.subject", b'"%070000d"' % 1), reason="undecodable", seq=7)
    small = await bury(bus, request(bus, "run-9"), "models", "policy", seq=8)
    await bus._connection.api(f"STREAM.PURGE.{bus.subjects.blob_stream}", None, dict[str, object])
    found = {each.id: each async for each in letters(bus)}
    assert set(found) == {large.id, small.id}
    assert (found[large.id].data.seq, found[large.id].data.raw) == (7, b"")
    assert found[large.id].data.message.startswith("what it holds is gone: blob sha256:")
    await drop(bus, found[large.id])
    assert [each.id async for each in letters(bus) if each.settled is None] == [small.id]


async def test_a_request_whose_data_is_gone_is_not_asked_for_again(bus: Bus) -> None:
    """As after a power cut that took it; where several are asked for again, the others are."""
    asked = RolloutRequest(task=msgspec.Raw(b'"%070000d"' % 1), agent="solver", run_id=RUN, task_index=3)
    event = bus.event(
        "rollout.requested",
        bus.subjects.request("agents", "solver", 1, "run-0", ROOT_CALL),
        msgspec.json.encode(asked),
        rolloutid="run-0",
        callkey=ROOT_CALL,
        replyto=bus.subjects.ended(RUN, "run-0"),
    )
    await bus.publish(event)
    await bus._connection.api(f"STREAM.PURGE.{bus.subjects.blob_stream}", None, dict[str, object])
    with pytest.raises(NotAgain, match=r"the request of rollout run-0 cannot be read: blob sha256:.* is not whole"):
        await requeue(bus, await bury(bus, event, reason="undecodable"))
