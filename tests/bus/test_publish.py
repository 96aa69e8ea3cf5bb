"""Publishing: stored once, confirmed or reported, whatever happens on the way."""

import asyncio

import msgspec
import pytest

from bus import Bus, Conflict, Unreachable
from bus.errors import BusClosed, BusError, EventIdReused
from bus.publish import MAX_IN_FLIGHT
from contracts.errors import InvalidName
from tests.bus.conftest import Open
from tests.bus.events import request, until
from tests.bus.proxy import Proxy


async def stored(bus: Bus) -> list[str]:
    """IDs of all events in the log."""
    return [recorded.event.id async for recorded in bus.scan()]


async def test_of_racing_publishes_to_one_subject_exactly_one_is_stored(url: str, open_bus: Open) -> None:
    """B1."""
    buses = [await open_bus(url) for _ in range(6)]
    rounds = 30
    for number in range(rounds):
        events = [request(bus, f"r{number}") for bus in buses]
        results = await asyncio.gather(
            *(bus.publish(event) for bus, event in zip(buses, events, strict=True)), return_exceptions=True
        )
        winners = [event for event, result in zip(events, results, strict=True) if isinstance(result, int)]
        losers = [result for result in results if isinstance(result, Conflict)]
        assert len(winners) == 1
        assert len(losers) == len(buses) - 1
        assert {loser.stored.event.id for loser in losers} == {winners[0].id}
    assert len(await stored(buses[0])) == rounds


async def test_publishing_the_same_event_again_is_a_success_with_the_same_sequence(bus: Bus) -> None:
    """B2."""
    event = request(bus, "r1")
    assert await bus.publish(event) == await bus.publish(event)
    assert await stored(bus) == [event.id]


async def test_another_event_on_a_held_subject_is_a_conflict_that_shows_what_is_stored(bus: Bus) -> None:
    """B2."""
    first = request(bus, "r1", data=b'{"mine": true}')
    seq = await bus.publish(first)
    with pytest.raises(Conflict) as caught:
        await bus.publish(request(bus, "r1"))
    assert caught.value.stored.seq == seq
    assert caught.value.stored.event.id == first.id
    assert bytes(caught.value.stored.event.data) == b'{"mine": true}'


async def test_the_same_event_id_with_other_bytes_is_an_error(bus: Bus) -> None:
    """B2."""
    event = request(bus, "r1")
    await bus.publish(event)
    with pytest.raises(EventIdReused):
        await bus.publish(msgspec.structs.replace(event, data=msgspec.Raw(b"[1]")))


async def test_a_lost_ack_ends_as_success_when_the_stored_event_is_its_own(proxy: Proxy, open_bus: Open) -> None:
    """B2, B3."""
    bus = await open_bus(proxy.url)
    proxy.deaf = True
    publishing = asyncio.create_task(bus.publish(request(bus, "r1")))
    await proxy.swallowed.wait()
    proxy.deaf = False
    proxy.cut()
    assert await publishing == 1
    assert len(await stored(bus)) == 1


async def test_a_lost_ack_ends_as_conflict_when_another_writer_came_first(
    proxy: Proxy, server: str, open_bus: Open
) -> None:
    """B2."""
    late, first = await open_bus(proxy.url), await open_bus(server)
    winner = request(first, "r1")
    await first.publish(winner)
    proxy.deaf = True
    publishing = asyncio.create_task(late.publish(request(late, "r1")))
    await proxy.swallowed.wait()
    proxy.deaf = False
    proxy.cut()
    with pytest.raises(Conflict) as caught:
        await publishing
    assert caught.value.stored.event.id == winner.id


async def test_an_ack_lost_on_a_living_connection_is_asked_for_again(
    proxy: Proxy, open_bus: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B3: no disconnect tells of it, only silence."""
    monkeypatch.setattr("bus.publish._QUIET_S", 0.3)
    monkeypatch.setattr("bus.publish._CHECK_S", 0.1)
    bus = await open_bus(proxy.url)
    proxy.deaf = True
    publishing = asyncio.create_task(bus.publish(request(bus, "r1")))
    await proxy.swallowed.wait()  # the ack is one piece, so the protocol's framing survives its loss
    proxy.deaf = False
    assert await asyncio.wait_for(publishing, 10) == 1


async def test_the_number_in_flight_is_bounded_and_all_are_stored(bus: Bus) -> None:
    """B3."""
    count = 2 * MAX_IN_FLIGHT + 10
    most = 0

    async def publish(number: int) -> int:
        nonlocal most
        acked = await bus.post(request(bus, f"r{number}"))
        most = max(most, bus.in_flight)
        return await acked

    seqs = await asyncio.gather(*(publish(number) for number in range(count)))
    assert sorted(seqs) == list(range(1, count + 1))
    assert most == MAX_IN_FLIGHT
    assert bus.in_flight == 0


async def test_a_disconnect_in_a_burst_resolves_every_publish_and_stores_each_once(
    proxy: Proxy, open_bus: Open
) -> None:
    """B3."""
    bus = await open_bus(proxy.url)
    events = [request(bus, f"r{number}") for number in range(2_100)]
    publishing: list[asyncio.Task[int]] = []
    for number in range(3):
        publishing += [asyncio.create_task(bus.publish(event)) for event in events[number::3]]
        await until(lambda: bus.in_flight > 100)
        proxy.deaf = True
        await asyncio.sleep(0.01)
        proxy.cut()
        proxy.deaf = False
        await asyncio.sleep(0.05)
    await asyncio.wait_for(asyncio.gather(*publishing), 30)
    assert sorted(await stored(bus)) == sorted(event.id for event in events)


async def test_a_server_that_stays_away_fails_the_publish_after_the_outage_limit(
    proxy: Proxy, open_bus: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B3: by error, where retrying has no end."""
    monkeypatch.setattr("bus.publish._CHECK_S", 0.1)
    monkeypatch.setattr("bus.publish._QUIET_S", 0.1)
    monkeypatch.setattr("bus.bus.OUTAGE_S", 0.3)
    bus = await open_bus(proxy.url)
    await proxy.close()
    with pytest.raises(Unreachable, match="not stored within"):
        await asyncio.wait_for(bus.publish(request(bus, "r1")), 10)


async def test_closing_resolves_what_is_pending(proxy: Proxy, open_bus: Open) -> None:
    """B3: shutdown leaves no future open, neither one in flight nor one that waits for room."""
    bus = await open_bus(proxy.url)
    proxy.deaf = True
    tasks = [asyncio.create_task(bus.publish(request(bus, f"r{n}"))) for n in range(MAX_IN_FLIGHT + 5)]
    await proxy.swallowed.wait()
    await until(lambda: bus.in_flight == MAX_IN_FLIGHT)
    await bus.close(timeout_s=0.1)
    results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
    assert all(isinstance(result, BusClosed) for result in results)


async def test_a_cancelled_publish_gives_its_place_back(bus: Bus) -> None:
    """B3."""
    task = asyncio.create_task(bus.publish(request(bus, "r1")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await bus.publish(request(bus, "r2"))
    assert bus.in_flight == 0


@pytest.mark.parametrize("subject", ["", "a b", "a\r\nPUB b 0\r\n\r\n", "a..b", ".a", "a.", "a.*", "a.>", "ä.b", "a\0"])
async def test_a_subject_that_is_not_literal_is_refused_before_it_is_sent(bus: Bus, subject: str) -> None:
    """B13."""
    with pytest.raises(InvalidName):
        await bus.publish(bus.event("model.requested", subject))


async def test_a_subject_that_no_stream_takes_is_an_error_that_says_so(
    url: str, open_bus: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bus.bus.OUTAGE_S", 0.2)
    bus = await open_bus(url)
    with pytest.raises(BusError, match="ensure_log"):
        await bus.publish(bus.event("model.requested", f"{bus.config.namespace}.99.x"))


async def test_what_need_not_wait_is_sent_at_once_and_stored_like_anything_else(bus: Bus) -> None:
    """B3."""
    stored = bus.post_at_once(request(bus, "r1"))
    assert stored is not None
    assert await stored > 0
    large = request(bus, "r2", data=b'"' + b"x" * bus.config.inline_limit + b'"')
    assert bus.post_at_once(large) is None, "its blob has to be stored first"
    assert await bus.last(large.subject) is None


async def test_an_event_says_nothing_of_what_it_does_not_have(bus: Bus) -> None:
    """A field that stands at its default is no byte of the log."""
    subject = bus.subjects.request("models", "policy", 1, "r", "m_0")
    await bus.publish(bus.event("model.requested", subject, rolloutid="r", callkey="m_0"))
    (recorded,) = await bus.history("r")
    assert set(msgspec.json.decode(recorded.raw)) == {"id", "source", "type", "time", "subject", "rolloutid", "callkey"}
