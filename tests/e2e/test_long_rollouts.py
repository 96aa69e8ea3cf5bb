"""A rollout of any length is shown, verified, compared, forked, stepped through and exported in bounded memory (R6).

Each verb runs in a process of its own, on a rollout of 12 MB and on one of 52 MB. Of the 40 MB more only an outline, of
about a kilobyte an event, may be in memory. Held as one list of events, they take at least as much again.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.long_rollout import PROJECT, VERBS, Rollouts, run

SHORT_MB, LONG_MB = 12, 52
MORE_MB = 20

Pair = tuple[Rollouts, Rollouts]


@pytest.fixture(scope="module")
def rollouts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A short one and a long one, in files."""
    found = Rollouts(tmp_path_factory.mktemp("short"), SHORT_MB), Rollouts(tmp_path_factory.mktemp("long"), LONG_MB)
    yield found
    for each in found:
        each.file.unlink()
        each.other.unlink()


def peak_mb(rollout: Rollouts, verb: str) -> float:
    return run(rollout.arguments(verb), PROJECT, verb)[0]


@pytest.mark.parametrize("verb", VERBS)
def test_r6_a_verb_reads_a_long_rollout_out_of_a_file_in_bounded_memory(rollouts: Pair, verb: str) -> None:
    short, long = rollouts
    assert long.file.stat().st_size - short.file.stat().st_size > 2 * MORE_MB * 0.9e6
    assert peak_mb(long, verb) < peak_mb(short, verb) + MORE_MB


async def test_r6_a_log_is_read_in_bounded_memory_too(rollouts: Pair, tmp_path: Path) -> None:
    """Of a log some megabytes are read ahead, which the server sends as it likes."""
    _, long = rollouts
    in_file = peak_mb(long, "show")
    async with long.in_log(tmp_path):
        peaks = {verb: peak_mb(long, verb) for verb in ("verify", "export html")}
    assert max(peaks.values()) < in_file + 2 * MORE_MB, peaks
