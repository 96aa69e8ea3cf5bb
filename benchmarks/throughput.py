"""Rollouts per second with everything on, beside the bare pipeline on the same machine in the same run.

Ours is `jetgym run` as a user runs it: validation, durable agents, the log, the result files; the model is
`scripted_model` at zero latency. The yardstick (`--bare PATH`) puts the same events in a log and does nothing else; it
stays outside the repository, and without it our figure stands alone. The two alternate; the medians are reported.

    python benchmarks/throughput.py --bare ../shared/bench/bare_pipeline.py --json
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

from benchmarks import running

ROLLOUTS = {1: 20_000, 3: 6_000}
"""Rollouts a round, by turns: some seconds each."""


def ours(turns: int, rollouts: int, *overrides: str) -> float:
    """Rollouts/s of `jetgym run` with these overrides, from the first request to the last terminal event."""
    with running.jetgym_run(f"throughput_{turns}", rollouts, *overrides) as run:
        metrics = run.wait()
    if metrics["completed"] != rollouts:
        raise running.Failed(f"only {metrics['completed']} of {rollouts} rollouts completed: {metrics}")
    return rollouts / float(metrics["wall_s"])


def compare(turns: int, rollouts: int, rounds: int, bare: Path, *, show: bool) -> dict[str, float]:
    """The medians of some rounds in which the two sides alternate."""
    mine, yardstick = [], []
    for _ in range(rounds):
        mine.append(ours(turns, rollouts))
        if bare.is_file():
            yardstick.append(float(running.bare(bare, rollouts, turns=turns)["rollouts_per_s"]))
    figures: dict[str, float] = {"ours": round(statistics.median(mine))}
    if yardstick:
        figures["bare"] = round(statistics.median(yardstick))
        figures["ratio"] = round(statistics.median(mine) / statistics.median(yardstick), 3)
    if show:
        print(f"{turns} turn(s), {rollouts} rollouts, {rounds} rounds: {figures} (rollouts/s, medians)")
    return figures


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bare", type=Path, default=running.BARE, help="left out if not there")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the rollouts of a round")
    parser.add_argument("--json", action="store_true", help="print one JSON line")
    args = parser.parse_args()

    try:
        report = {
            f"turns_{turns}": compare(
                turns, max(1, int(count * args.scale)), args.rounds, args.bare, show=not args.json
            )
            for turns, count in ROLLOUTS.items()
        }
    except running.Failed as failed:
        sys.exit(str(failed))
    if args.json:
        print(json.dumps(report))


if __name__ == "__main__":
    main()
