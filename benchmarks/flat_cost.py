"""Does a rollout cost the same when the log has grown? 100,000 rollouts in one log, against the first 10,000 of them.

`jetgym run` as a user runs it, one turn a rollout, a model at zero latency, at most 4,096 rollouts unfinished at a
time. When each rollout ended stands in the log; the machine must be quiet from the beginning to the end.

    python benchmarks/flat_cost.py [--rollouts 100000] [--first 10000] [--json]

What it prints:

    rate         rollouts/s over the whole run, from its first end to its last
    first_rate   rollouts/s of the first 10,000
    last_rate    rollouts/s of the last 10,000
    ratio        rate / first_rate: 1 where the cost is flat

It takes some minutes, and about a gigabyte of disk for 100,000 rollouts.
"""

import argparse
import asyncio
import sys

from benchmarks import running

CONFIG = "throughput_1"
UNFINISHED = 4_096


def measure(rollouts: int, first: int, *, seconds: float, show: bool) -> dict[str, float]:
    """One run."""
    with running.jetgym_run(CONFIG, rollouts, f"concurrency={UNFINISHED}", seconds=seconds, show=show) as run:
        completed = run.wait()["completed"]
        if completed != rollouts:
            raise running.Failed(f"only {completed} of {rollouts} rollouts completed")
        ends = asyncio.run(times_of_ends(run))
    rate, first_rate, last_rate = per_second(ends), per_second(ends[:first]), per_second(ends[-first:])
    return {
        "rate": round(rate),
        "first_rate": round(first_rate),
        "last_rate": round(last_rate),
        "ratio": round(rate / first_rate, 3),
    }


async def times_of_ends(run: running.Run) -> list[float]:
    """When each rollout ended, in order."""
    async with run.log() as bus:
        return sorted([e.event.time.timestamp() async for e in bus.scan(bus.subjects.ended_of(0, "*"))])


def per_second(ends: list[float]) -> float:
    """The rate at which they came."""
    return (len(ends) - 1) / (ends[-1] - ends[0])


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=10_000, help="how many make the rate to compare with")
    parser.add_argument("--seconds", type=float, default=1200.0, help="after which it is given up")
    parser.add_argument("--json", action="store_true", help="print one JSON line, and no progress")
    args = parser.parse_args()
    if not 1 < args.first <= args.rollouts:
        parser.error("--first must be from 2 to --rollouts")
    try:
        figures = measure(args.rollouts, args.first, seconds=args.seconds, show=not args.json)
    except running.Failed as failed:
        sys.exit(str(failed))
    running.report(figures, as_json=args.json)


if __name__ == "__main__":
    main()
