"""65,536 rollouts in flight at once on one machine: do all complete, in what time, memory and loop lag?

`jetgym run` as a user runs it, with a model that takes 30 s for each call, so that all rollouts wait for it at once;
beside it the bare pipeline (`--bare PATH`) with the same number and latency. The yardstick stays outside the
repository; without it our figures stand alone.

    python benchmarks/in_flight.py [--rollouts 65536] [--json]

What it prints:

    completed         rollouts that ended with a reward
    at_once           model calls that were asked and not answered at the same time, at most, by the log
    wall_s            seconds from the first request to the last end
    bare_wall_s       the bare pipeline's seconds for the same
    agent_peak_mb     largest memory of the agent worker
    rollout_kb        what each rollout in flight added to it, above the worker's memory at its start
    loop_lag_p99_ms   the agent worker's event loop: 99 of 100 looks at it, ten a second, came no later than this; the
                      worst minute of the run
    events_per_s      events stored in the log, over the whole run

It takes about three minutes and some gigabytes of disk for 65,536 rollouts.
"""

import argparse
import asyncio
import sys
import time
from pathlib import Path

from benchmarks import running

CONFIG = "in_flight"
LATENCY_S = 30.0
"""As in the config."""
LOOK_S = 0.5
MINUTE_S = 60.0


def ours(rollouts: int, *, seconds: float, show: bool) -> dict[str, int | float]:
    """One run of JetGym."""
    first = peak = 0
    with running.jetgym_run(CONFIG, rollouts, seconds=seconds, show=show) as run:
        name = worker = None
        while run.going():
            if worker is None:
                name, worker = next(((n, pid) for n, pid in run.workers.items() if "agent" in n), (None, None))
            else:
                peak = max(peak, running.peak_mb(worker))
                first = first or peak
            time.sleep(LOOK_S)
        metrics = run.wait()
        health = run.said(str(name), "worker.health")
        minutes = [line for line in health if line["loop_lag_of_s"] >= MINUTE_S] or health[-1:]
        at_once, events = asyncio.run(outline(run))
    return {
        "completed": metrics["completed"],
        "at_once": at_once,
        "wall_s": round(metrics["wall_s"], 1),
        "agent_peak_mb": peak,
        "rollout_kb": round((peak - first) * 1000 / rollouts, 1),
        "loop_lag_p99_ms": max((line["loop_lag_p99_ms"] for line in minutes), default=0.0),
        "events_per_s": round(events / metrics["wall_s"]),
    }


async def outline(run: running.Run) -> tuple[int, int]:
    """How many model calls were open at once, and how many events there are, by the log."""
    steps: list[tuple[float, int]] = []
    events = 0
    async with run.log() as bus:
        async for recorded in bus.scan():
            events += 1
            if recorded.event.type.startswith("model."):
                steps.append((recorded.event.time.timestamp(), 1 if recorded.event.type == "model.requested" else -1))
    now = most = 0
    for _, step in sorted(steps):
        now += step
        most = max(most, now)
    return most, events


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=running.MOST, help=f"at most {running.MOST}")
    parser.add_argument("--bare", type=Path, default=running.BARE, help="the bare pipeline; left out if not there")
    parser.add_argument("--seconds", type=float, default=600.0, help="after which each side is given up")
    parser.add_argument("--json", action="store_true", help="print one JSON line, and no progress")
    args = parser.parse_args()
    if not 1 <= args.rollouts <= running.MOST:
        parser.error(f"--rollouts must be from 1 to {running.MOST}")
    try:
        figures: dict[str, int | float | None] = {**ours(args.rollouts, seconds=args.seconds, show=not args.json)}
        figures["bare_wall_s"] = None
        if args.bare.is_file():
            yardstick = running.bare(args.bare, args.rollouts, latency_s=LATENCY_S, seconds=args.seconds)
            figures["bare_wall_s"] = round(yardstick["seconds"], 1)
    except running.Failed as failed:
        sys.exit(str(failed))
    running.report(figures, as_json=args.json)


if __name__ == "__main__":
    main()
