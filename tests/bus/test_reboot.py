"""After a start of the machine the pools of a log begin anew: their acks may have outlived what was acknowledged."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bus import Bus, EmbeddedServer, LogConfig
from bus.overview import slots_from
from bus.reboot import begin_anew_after_reboot
from tests.bus.events import models, reply, request, take


@pytest.mark.parametrize("noted", [b"an earlier start of the machine", None], ids=["restarted", "not known"])
async def test_requests_that_are_done_are_delivered_again_once(
    new_directory: Callable[[], Path], noted: bytes | None
) -> None:
    """B6: whoever gets one is told that it may have been done, though for this consumer it is the first delivery."""
    config = LogConfig(partitions=2)
    server = await EmbeddedServer.start(new_directory(), config)
    try:
        async with await Bus.connect(server.url, config, name="models/policy/w", writer="w") as bus:
            await bus.ensure_log()
            assert not await begin_anew_after_reboot(bus, server.directory), "no worker has ever been here"
            rollouts = [f"r{number}" for number in range(6)]
            pool = await models(bus)
            for rollout in rollouts:
                await bus.publish(request(bus, rollout))
                (delivery,) = await take(pool)
                await bus.publish(reply(bus, rollout))
                delivery.ack()
            await pool.close()
            assert not await begin_anew_after_reboot(bus, server.directory), "the machine has not been away"
            note = server.directory / "boot"
            note.unlink() if noted is None else note.write_bytes(noted)
            assert await begin_anew_after_reboot(bus, server.directory)
            assert await slots_from(bus, "models", "policy", 0) == [0], "a config with fewer slots finds them"
            assert not await begin_anew_after_reboot(bus, server.directory)
            deliveries = await take(await models(bus), len(rollouts))
            assert sorted(delivery.event.rolloutid for delivery in deliveries) == rollouts
            assert {(delivery.num_delivered, delivery.redelivered) for delivery in deliveries} == {(1, True)}
    finally:
        await server.stop()
