"""What is told of a process that grew."""

from components.workers.memory import MB, SOON_S, growth


def test_a_bound_that_leaves_little_room_is_told() -> None:
    """Else the worker begins anew every few seconds, and nobody knows why its pool is slow."""
    assert growth(63 * MB, 62 * MB, 60 * MB, 4.0) == (
        "63 MB where 62 are allowed, 60 of them before its first call, 4 s ago: if its code does not leak, "
        "pool.memory_mb is too small"
    )
    assert (
        growth(301 * MB, 300 * MB, 60 * MB, SOON_S) == "301 MB where 300 are allowed, 60 of them before its first call"
    )
