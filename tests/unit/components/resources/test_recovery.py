"""Sessions that are not here, or not as they were, are made again from their history, or lost for a reason."""

import asyncio

import pytest

from components.resources import (
    History,
    Resources,
    ResourcesConfig,
    Runtime,
    tool,
)
from components.resources.errors import (
    SessionLost,
)
from components.resources.sessions import Place
from components.resources.trial import Trial
from tests.unit.components.resources.adder import (
    TASK,
    Adder,
    add,
    call,
    request,
    said,
    seeded,
)


async def test_a_session_is_rebuilt_from_its_seed_and_calls_malformed_ones_included() -> None:
    runtime = Runtime(Adder())
    calls = [add(1), call("add", "{"), call("nothing"), call("fail", '{"how": "value"}'), add(2)]
    await runtime.rebuild("r", History(TASK, calls))
    assert (await runtime.verify("r", request())).reward == 1.0


class Service(Resources[ResourcesConfig]):
    """A counter behind a service that may be away or slow."""

    there, slow = True, False

    def seed_session(self) -> list[int]:
        return []

    @tool
    async def push(self, session: list[int]) -> str:
        """Pushes."""
        if not self.there:
            raise ConnectionError("no service")
        if self.slow:
            await asyncio.Event().wait()
        session.append(1)
        return f"{len(session)} of {id(session)}"

    def verify(self, session: list[int]) -> float:
        return len(session)


@pytest.mark.parametrize("trouble", [{"there": False}, {"slow": True}])
@pytest.mark.parametrize("since", [True, False])
async def test_a_session_is_lost_when_a_call_made_again_ends_otherwise_than_it_did(
    trouble: dict[str, bool], since: bool
) -> None:
    """E9: a service that was away for a rebuild, or before it, must not end as a low reward."""
    service = Service(ResourcesConfig(tool_deadline_s=0.05))
    trial = Trial(service, {})
    healthy = {"there": True, "slow": False}
    vars(service).update(healthy if since else trouble)
    await trial.call("push")
    vars(service).update(trouble if since else healthy)
    with pytest.raises(
        SessionLost, match=r"the session of trial is lost: made again, push \(call_0\) was answered with"
    ):
        await trial.rebuild()


@pytest.mark.parametrize("trouble", [{}, {"there": False}, {"slow": True}])
async def test_a_session_is_rebuilt_when_each_call_made_again_ends_as_it_did(trouble: dict[str, bool]) -> None:
    """Whatever the words: an output may name what differs each time."""
    service = Service(ResourcesConfig(tool_deadline_s=0.05))
    vars(service).update(trouble)
    trial = Trial(service, {})
    for _ in range(2):
        await trial.call("push")
    await trial.call("unknown")
    await trial.rebuild()
    assert (await trial.verify()).reward == (0 if trouble else 2)


async def test_a_call_recovers_its_session_in_its_own_turn() -> None:
    runtime, reads = Runtime(Adder()), 0

    async def recover() -> History:
        nonlocal reads
        reads += 1
        await asyncio.sleep(0)
        return History(TASK, [add(1)])

    outputs = await asyncio.gather(*(runtime.call("r", add(number), recover=recover) for number in (10, 20)))
    assert [bytes(output.output) for output in outputs] == [b'"13"', b'"33"']
    assert reads == 1


async def test_a_call_whose_session_lacks_the_one_before_it_is_recovered_and_one_beside_it_is_not() -> None:
    """Calls that do not take the session come between those that do, and need not be in it."""
    runtime, reads = Runtime(Adder()), 0
    await runtime.seed("r", TASK, place=Place("m_0", ""))

    async def recover() -> History:
        nonlocal reads
        reads += 1
        return History(TASK, [add(1), add(10)], last="m_2")

    await runtime.call("r", add(1), recover=recover, place=Place("m_1", "m_0"))
    assert reads == 0
    output = await runtime.call("r", add(100), recover=recover, place=Place("m_3", "m_2"))
    assert (reads, bytes(output.output)) == (1, b'"113"')
    await runtime.call("r", call("nothing"), place=Place("m_4", "m_3"))
    output = await runtime.call("r", add(1000), recover=recover, place=Place("m_5", "m_4"))
    assert (reads, bytes(output.output)) == (1, b'"1113"')


async def test_what_is_here_is_kept_where_the_history_says_that_it_is_the_last() -> None:
    """The call before was answered with an error, and is in no session."""

    async def recover() -> History:
        return History(TASK, [], last="m_0")

    runtime = Runtime(Unrepeatable())
    await runtime.seed("r", TASK, place=Place("m_0", ""))
    await runtime.verify("r", request(), recover=recover, place=Place("m_2", "m_1"))


async def test_a_session_that_is_here_is_not_recovered() -> None:
    async def recover() -> History:
        raise AssertionError("read for nothing")

    runtime = await seeded()
    await runtime.call("r", add(3), recover=recover)
    assert (await runtime.verify("r", request(), recover=recover)).reward == 1.0


async def test_verify_recovers_the_session_too() -> None:
    async def recover() -> History:
        return History(TASK, [add(3)])

    assert (await Runtime(Adder()).verify("r", request(), recover=recover)).reward == 1.0


async def test_a_session_that_cannot_be_recovered_is_lost_with_a_reason() -> None:
    with pytest.raises(SessionLost, match="the session of r is lost: it was never seeded") as loss:
        await Runtime(Adder()).call("r", add(1))
    assert loss.value.call_error().kind == "unavailable"


class Unrepeatable(Adder):
    rebuild = "fail"


async def test_a_component_that_does_not_rebuild_says_so() -> None:
    runtime = Runtime(Unrepeatable())
    with pytest.raises(SessionLost, match=r"Unrepeatable does not rebuild sessions"):
        await runtime.rebuild("r", History(TASK, []))
    await runtime.seed("r", TASK)
    assert await said(runtime, add(1)) == "3"


async def test_a_session_that_had_to_make_room_is_lost_for_that_reason() -> None:
    runtime = Runtime(Unrepeatable(ResourcesConfig(max_sessions=1)))
    for name in ("a", "b"):
        await runtime.seed(name, TASK)
    with pytest.raises(SessionLost, match="let it go for want of room: give it a larger max_sessions, or more workers"):
        await runtime.rebuild("a", History(TASK, []))
    with pytest.raises(SessionLost, match=r"\(rebuild = 'fail'\)$"):
        await runtime.rebuild("never", History(TASK, []))


async def test_sessions_are_bounded_and_the_oldest_is_recovered_when_it_is_needed() -> None:
    async def recover() -> History:
        return History(TASK, [add(1)])

    runtime = Runtime(Adder(ResourcesConfig(max_sessions=2)))
    for name in ("a", "b", "c"):
        await runtime.seed(name, TASK)
        await runtime.call(name, add(1))
    assert [runtime.has(name) for name in ("a", "b", "c")] == [False, True, True]
    output = await runtime.call("a", add(1), recover=recover)
    assert bytes(output.output) == b'"4"'


async def test_a_dropped_session_is_gone() -> None:
    runtime = await seeded()
    runtime.drop("r")
    runtime.drop("r")
    assert not runtime.has("r")
