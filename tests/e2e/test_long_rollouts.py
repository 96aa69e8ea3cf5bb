"""A rollout of any length is shown, verified, compared, forked, stepped through and exported in bounded memory (R6).

Each verb runs in a process of its own, on a rollout of 40 MB and on one of a few turns. What may come on top is twice
what is held of a rollout and the outline of its events; a copy of the rollout in memory, decoded, takes four to ten
times its bytes.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.long_rollout import PROJECT, VERBS, Rollouts, run

MEGABYTES = 40
MORE_MB = 70

Pair = tuple[Rollouts, Rollouts]


@pytest.fixture(scope="module")
def rollouts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A short one and a long one, in files."""
    found = Rollouts(tmp_path_factory.mktemp("short"), 0), Rollouts(tmp_path_factory.mktemp("long"), MEGABYTES)
    yield found
    for each in found:
        each.file.unlink()
        each.other.unlink()


def peak_mb(rollout: Rollouts, verb: str) -> float:
    return run(rollout.arguments(verb), PROJECT, verb)[0]


@pytest.mark.parametrize("verb", VERBS)
def test_r6_a_verb_reads_a_long_rollout_out_of_a_file_in_bounded_memory(rollouts: Pair, verb: str) -> None:
    short, long = rollouts
    assert long.file.stat().st_size > 30e6
    assert peak_mb(long, verb) < peak_mb(short, verb) + MORE_MB


async def test_r6_a_log_is_read_in_bounded_memory_too(rollouts: Pair, tmp_path: Path) -> None:
    _, long = rollouts
    async with long.in_log(tmp_path):
        peaks = [peak_mb(long, verb) for verb in ("why", "verify", "export html", "export events")]
    assert max(peaks) < min(peaks) + MORE_MB
