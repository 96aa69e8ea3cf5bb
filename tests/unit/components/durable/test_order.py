"""The order in which an agent asked a resources instance, from what each of its calls names."""

import asyncio
import random
from datetime import UTC, datetime

import pytest

from components.durable import Context
from components.durable.order import in_order
from contracts.events import Event
from tests.unit.components.durable.world import World


def asked(key: str, after: str | None) -> Event:
    return Event(
        id=key, source="test", type="tool.requested", time=datetime.now(UTC), subject="s", callkey=key, afterkey=after
    )


def keys(*events: Event) -> list[str]:
    return [event.callkey for event in in_order(events, lambda event: event)]


@pytest.mark.parametrize("seed", range(5))
def test_calls_are_put_into_the_order_in_which_they_were_asked(seed: int) -> None:
    chain = [asked(f"m_{number}", f"m_{number - 1}" if number else "") for number in range(20)]
    stored = random.Random(seed).sample(chain, len(chain))
    assert keys(*stored) == [f"m_{number}" for number in range(20)]


def test_a_call_that_names_none_of_them_keeps_its_place() -> None:
    """It was written by a version that named none, or what it names is not there."""
    assert keys(asked("a", None), asked("c", "b"), asked("b", None), asked("d", "gone")) == ["a", "b", "c", "d"]


def test_a_call_to_resources_names_the_published_one_before_it_to_the_same_instance() -> None:
    """Not one that was given up before it was published: whoever waited for that would wait for ever."""

    async def call(context: Context, instance: str) -> None:
        await context.call("resources", instance, "tool.requested", b"null")

    async def main(context: Context) -> str:
        given_up = asyncio.ensure_future(call(context, "a"))
        first, other = asyncio.ensure_future(call(context, "a")), asyncio.ensure_future(call(context, "b"))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(first, other, call(context, "a"), context.call("models", "a", "model.requested", b"null"))
        return "done"

    execution = World.execution_of(main)
    calls = execution.start()
    assert [(each.key, each.instance, each.after) for each in calls] == [
        ("m2_0", "a", ""),
        ("m3_0", "b", ""),
        ("m4_0", "a", "m2_0"),
        ("m5_0", "a", None),
    ]
    execution.close()
