"""An agent worker is killed with many rollouts in flight: is each carried on, how soon, and is any model call repeated?

`jetgym run` as a user runs it, with rollouts of two turns and a model that takes 20 s. When half of the rollouts have
got their first reply, the agent worker is killed with SIGKILL, by its process ID. The supervisor starts another one,
and after the ack wait (30 s without a sign of life) the log gives it the rollouts, which it adopts.

    python benchmarks/recovery.py [--rollouts 20000] [--json]

What it prints:

    in_flight             rollouts requested and not ended when the worker was killed, by the log
    adopted               those of them that the new worker adopted
    completed             rollouts that ended with a reward, each counted once
    repeated_model_calls  calls that the model was asked beyond two a rollout, by the model's own record
    adoption_s            seconds from the kill and one ack wait until the last of them was adopted

It takes about three minutes for 20,000 rollouts.
"""

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks import running
from bus import LogConfig

CONFIG = "recovery"
TURNS = 2
LOOK_S = 0.1


def calls_in(record: Path) -> int:
    """Model calls so far."""
    return record.read_bytes().count(b"\n") if record.exists() else 0


def measure(rollouts: int, *, seconds: float, show: bool) -> dict[str, int | float]:
    """One run, one kill."""
    with tempfile.TemporaryDirectory() as temporary:
        record = Path(temporary) / "calls"
        with running.jetgym_run(
            CONFIG,
            rollouts,
            f"policy.models.counted_model.record={record}",
            seconds=seconds,
            show=show,
            folder=Path(__file__).parent,
        ) as run:
            while calls_in(record) < rollouts * 3 // 2:
                if not run.going():
                    raise running.Failed("the run ended before its worker could be killed")
                time.sleep(LOOK_S)
            worker = next(pid for name, pid in run.workers.items() if name.startswith("weather_agent"))
            os.kill(worker, signal.SIGKILL)
            killed = time.time()
            completed = run.wait()["completed"]
            in_flight, adoptions = asyncio.run(history(run, killed))
        asked = Counter(line.split()[0] for line in record.read_text().splitlines())
    return {
        "in_flight": in_flight,
        "adopted": len(adoptions),
        "completed": completed,
        "repeated_model_calls": sum(calls - TURNS for calls in asked.values()),
        "adoption_s": round(max(adoptions.values(), default=killed) - killed - LogConfig().ack_wait_s, 1),
    }


async def history(run: running.Run, killed: float) -> tuple[int, dict[str, float]]:
    """How many rollouts were in flight at the kill, and when each was adopted after it, by the log."""
    in_flight, adoptions = 0, {}
    async with run.log() as bus:
        filters = (f"{bus.config.namespace}.0.agents.>", f"{bus.config.namespace}.0.rollout.>")
        async for recorded in bus.scan(*filters):
            event, at = recorded.event, recorded.event.time.timestamp()
            if event.type == "rollout.adopted":
                adoptions[event.rolloutid] = at
            elif at < killed:
                in_flight += 1 if event.type == "rollout.requested" else -1
    return in_flight, adoptions


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=20_000, help="at most 65536")
    parser.add_argument("--seconds", type=float, default=600.0, help="after which it is given up")
    parser.add_argument("--json", action="store_true", help="print one JSON line, and no progress")
    args = parser.parse_args()
    if not 1 <= args.rollouts <= running.MOST:
        parser.error(f"--rollouts must be from 1 to {running.MOST}")
    try:
        figures = measure(args.rollouts, seconds=args.seconds, show=not args.json)
    except running.Failed as failed:
        sys.exit(str(failed))
    running.report(figures, as_json=args.json)


if __name__ == "__main__":
    main()
