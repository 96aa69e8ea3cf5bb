"""What is told of a process that grew, and what it gives back."""

import asyncio
import platform

import pytest

from components.workers.memory import MB, SOON_S, give_back, grown, growth, in_use


def test_a_bound_that_leaves_little_room_is_told() -> None:
    """Else the worker begins anew every few seconds, and nobody knows why its pool is slow."""
    assert growth(63 * MB, 62 * MB, 60 * MB, 4.0) == (
        "63 MB where 62 are allowed, 60 of them before its first call, 4 s ago: if its code does not leak, "
        "pool.memory_mb is too small"
    )
    assert (
        growth(301 * MB, 300 * MB, 60 * MB, SOON_S) == "301 MB where 300 are allowed, 60 of them before its first call"
    )


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such call")
def test_what_is_free_between_things_that_stay_is_given_back() -> None:
    before, large, kept = in_use(), [], []
    for number in range(1_000):
        large.append(bytes([number % 256]) * 100_000)
        kept.append(bytes([number % 256]) * 1_000)
    assert in_use() - before > 80 * MB
    large.clear()
    give_back()
    assert in_use() - before < 20 * MB
    assert kept


async def test_garbage_that_nobody_has_searched_for_is_no_reason_to_begin_anew() -> None:
    class Ring:
        def __init__(self) -> None:
            self.itself, self.large = self, bytes([1]) * (20 * MB)

    limit = in_use() + 100 * MB
    growing = asyncio.create_task(grown(limit))
    for _ in range(10):
        Ring()
    assert in_use() > limit
    await asyncio.sleep(0)
    assert not growing.done()
    kept = [Ring() for _ in range(10)]
    async with asyncio.timeout(20):
        assert await growing > limit
    assert kept
