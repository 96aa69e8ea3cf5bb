"""What does each value of `log.durability` cost? One-turn rollouts per second, with everything on.

`fast` and `always` run on the server that a run starts itself; `replicated` on three servers that this script starts on
the same machine and disk, which share its cores: on three machines it is faster. The profiles alternate; the medians
are reported.

    python benchmarks/durability.py --json
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # this folder's place on the path is not the root

from benchmarks.throughput import ours
from tests.cluster import running_cluster

ROLLOUTS = {"fast": 6_000, "always": 1_500, "replicated": 1_500}
"""A round: some seconds each."""


async def measure(profile: str, rollouts: int) -> float:
    """Rollouts/s of `jetgym run`."""
    overrides = [f"++log.durability={profile}"]
    if profile != "replicated":
        return await asyncio.to_thread(ours, 1, rollouts, *overrides)
    with tempfile.TemporaryDirectory() as folder:
        async with running_cluster(Path(folder)) as cluster:
            return await asyncio.to_thread(ours, 1, rollouts, *overrides, f"++server.url='{cluster.url}'")


async def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the rollouts of a round")
    parser.add_argument("--json", action="store_true", help="print one JSON line")
    args = parser.parse_args()
    rates: dict[str, list[float]] = {profile: [] for profile in ROLLOUTS}
    load = os.getloadavg()[0]
    for _ in range(args.rounds):
        for profile, rollouts in ROLLOUTS.items():
            rates[profile].append(await measure(profile, max(1, int(rollouts * args.scale))))
    medians = {profile: round(statistics.median(found)) for profile, found in rates.items()}
    report = {**medians, "load_before": round(load, 1)}
    print(json.dumps(report) if args.json else f"one-turn rollouts/s: {report}")


if __name__ == "__main__":
    asyncio.run(main())
