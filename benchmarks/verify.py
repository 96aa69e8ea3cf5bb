"""How long does `replay verify` take for a whole run? For 65,536 rollouts of 20 events it has to be under 3 minutes.

Repeats a recorded rollout of 18 events (a model that calls tools, on a session) under IDs of their own, in a file of
exported events, and verifies all of them as the command does. Then it extrapolates: what the start takes is measured by
verifying nearly nothing, and the rest is taken in proportion to the events.

    python benchmarks/verify.py [--rollouts 4096] [--jobs 2] [--json]

What it prints:

    rollouts            that were verified
    events              in them
    jobs                processes
    seconds             by the clock
    cpu_s               of the processors
    clock_target_s      extrapolated for 65,536 rollouts of 20 events, by the clock
    cpu_target_s        the same from the processors' seconds, divided by the processes: what counts on a busy machine
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden" / "solver.jsonl"
TARGET = 65_536 * 20
FEW = 2


def write(path: Path, rollouts: int) -> int:
    """Writes the file; returns the events of one rollout."""
    lines = GOLDEN.read_bytes().splitlines(keepends=True)
    facts = [line for line in lines if not json.loads(line).get("rolloutid")]
    events = [line for line in lines if json.loads(line).get("rolloutid")]
    name = json.loads(events[0])["rolloutid"].encode()
    with path.open("wb") as file:
        file.writelines(facts)
        for number in range(rollouts):
            new = b"bench-%05d-00" % number
            file.writelines(line.replace(name, new) for line in events)
    return len(events)


def verify(path: Path, jobs: int) -> tuple[float, float]:
    """Seconds that `replay verify` took, by the clock and of the processors."""
    command = [sys.executable, "-P", "-m", "replay", "verify", "--file", str(path), "--jobs", str(jobs)]
    started, before = time.monotonic(), cpu_s()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return time.monotonic() - started, cpu_s() - before


def cpu_s() -> float:
    """Seconds of processors that ended processes used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(rollouts: int, jobs: int) -> dict[str, Any]:
    """The figures."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        write(path, FEW)
        start_s, start_cpu_s = verify(path, jobs)
        events = write(path, rollouts)
        total_s, total_cpu_s = verify(path, jobs)
    measured = (rollouts - FEW) * events
    each_s, each_cpu_s = (total_s - start_s) / measured, (total_cpu_s - start_cpu_s) / measured
    return {
        "rollouts": rollouts,
        "events": rollouts * events,
        "jobs": jobs,
        "seconds": round(total_s, 2),
        "cpu_s": round(total_cpu_s, 2),
        "clock_target_s": round(start_s + each_s * TARGET, 1),
        "cpu_target_s": round((start_cpu_s + each_cpu_s * TARGET) / jobs, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=4096)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = measure(arguments.rollouts, arguments.jobs)
    print(json.dumps(found) if arguments.json else "\n".join(f"{key:26} {value}" for key, value in found.items()))


if __name__ == "__main__":
    main()
