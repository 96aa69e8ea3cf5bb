"""Short forms for the events of these tests, and for waiting."""

import asyncio
import socket
from collections.abc import Callable

from bus import Bus, Delivery, Pool
from contracts.events import Event

PATIENCE_S = 20


async def until(condition: Callable[[], bool]) -> None:
    """Returns when the condition holds; a test that waits in vain fails."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - any condition, also of objects that tell nobody
            await asyncio.sleep(0.005)


def free_port() -> int:
    """A port on loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def take(pool: Pool, count: int = 1) -> list[Delivery]:
    """The next deliveries."""
    async with asyncio.timeout(PATIENCE_S):
        return [await anext(pool) for _ in range(count)]


def request(bus: Bus, rollout: str, key: str = "m_0", *, data: bytes = b"{}", instance: str = "policy") -> Event:
    """A model call of worker `caller`."""
    return bus.event(
        "model.requested",
        bus.subjects.request("models", instance, 1, rollout, key),
        data,
        rolloutid=rollout,
        callkey=key,
        replyto=bus.subjects.reply("caller", rollout, key),
    )


def reply(bus: Bus, rollout: str, key: str = "m_0", *, worker: str = "caller", data: bytes = b"{}") -> Event:
    """The answer to it."""
    return bus.event("model.replied", bus.subjects.reply(worker, rollout, key), data, rolloutid=rollout, callkey=key)


def ended(bus: Bus, run: str, rollout: str) -> Event:
    """A rollout's end."""
    return bus.event("rollout.completed", bus.subjects.ended(run, rollout), b"{}", rolloutid=rollout)


async def models(bus: Bus, instance: str = "policy", **options: float) -> Pool:
    """Takes part in a pool of model workers."""
    return await bus.pool("models", instance, [0], types=["model.requested"], **options)  # type: ignore[arg-type]
