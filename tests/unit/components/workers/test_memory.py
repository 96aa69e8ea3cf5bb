"""What is told of a process that grew, and what it gives back."""

import platform

import pytest

from components.workers.memory import MB, SOON_S, give_back, growth, in_use


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
