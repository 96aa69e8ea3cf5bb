"""What an operator is told of a log and its pools."""

from bus import Bus
from bus.overview import overview
from contracts.ids import ROOT_CALL
from tests.bus.events import ended, models, request, take


def rollout(bus: Bus, name: str) -> str:
    return bus.subjects.request("agents", "solver", 1, name, ROOT_CALL)


async def test_an_empty_log_is_all_zeros(bus: Bus) -> None:
    state = await overview(bus)
    assert (state.events, state.requested, state.ended, state.dead, state.pools) == (0, 0, 0, 0, ())


async def test_rollouts_events_and_what_waits_in_each_pool_are_counted(bus: Bus) -> None:
    for number in range(3):
        await bus.publish(bus.event("rollout.requested", rollout(bus, f"r{number}"), b"{}", rolloutid=f"r{number}"))
        await bus.publish(request(bus, f"r{number}"))
    await bus.publish(ended(bus, "run", "r0"))
    pool = await models(bus, batch=2)
    first, _ = await take(pool, 2)
    first.ack()
    state = await overview(bus)
    assert (state.events, state.requested, state.ended) == (7, 3, 1)
    (policy,) = state.pools
    assert (policy.kind, policy.instance) == ("models", "policy")
    assert policy.held + policy.waiting >= 2
