"""Rollouts per second with everything on, beside the bare pipeline on the same machine in the same run.

Ours is `jetgym run` as a user runs it: validation, durable agents, the log, the result files; the model is
`scripted_model` at zero latency. The yardstick (`--bare PATH`) puts the same events in a log and does nothing else; it
stays outside the repository, and without it our figure stands alone. The two alternate; the medians are reported.

    python benchmarks/throughput.py --bare ../shared/bench/bare_pipeline.py --json
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROLLOUTS = {1: 20_000, 3: 6_000}
"""Rollouts a round, by turns: some seconds each."""


def ours(turns: int, rollouts: int, *overrides: str) -> float:
    """Rollouts/s of `jetgym run` with these overrides, from the first request to the last terminal event."""
    with tempfile.TemporaryDirectory() as folder:
        tasks, output = Path(folder) / "tasks.jsonl", Path(folder) / "run"
        line = json.dumps(
            {
                "responses_create_params": {
                    "input": [{"role": "user", "content": "x" * 600}],
                    "tools": [
                        {
                            "type": "function",
                            "name": "get_weather",
                            "description": "The weather in a city.",
                            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
                            "strict": False,
                        }
                    ],
                }
            }
        )
        tasks.write_text(f"{line}\n" * rollouts)
        subprocess.run(
            [
                sys.executable,
                "-m",
                "orchestrator",
                "run",
                str(ROOT / "configs" / f"throughput_{turns}.yaml"),
                *overrides,
                "--input",
                str(tasks),
                "--output",
                str(output),
            ],
            check=True,
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
        )
        run = json.loads((output / "metrics.json").read_text())["run"]
        if run["completed"] != rollouts:
            sys.exit(f"only {run['completed']} of {rollouts} rollouts completed: {run}")
        return rollouts / float(run["wall_s"])


def bare(path: Path, turns: int, rollouts: int) -> float:
    """Rollouts/s of the bare pipeline."""
    command = [sys.executable, str(path), "--rollouts", str(rollouts), "--turns", str(turns)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(json.loads(printed.splitlines()[-1])["rollouts_per_s"])


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bare", type=Path, default=ROOT.parent / "shared" / "bench" / "bare_pipeline.py")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the rollouts of a round")
    parser.add_argument("--json", action="store_true", help="print one JSON line")
    args = parser.parse_args()

    report: dict[str, dict[str, float]] = {}
    for turns, count in ROLLOUTS.items():
        rollouts = max(1, int(count * args.scale))
        mine, yardstick = [], []
        for _ in range(args.rounds):
            mine.append(ours(turns, rollouts))
            if args.bare.is_file():
                yardstick.append(bare(args.bare, turns, rollouts))
        figures: dict[str, float] = {"ours": round(statistics.median(mine))}
        if yardstick:
            figures["bare"] = round(statistics.median(yardstick))
            figures["ratio"] = round(statistics.median(mine) / statistics.median(yardstick), 3)
        report[f"turns_{turns}"] = figures
        if not args.json:
            print(f"{turns} turn(s), {rollouts} rollouts, {args.rounds} rounds: {figures} (rollouts/s, medians)")
    if args.json:
        print(json.dumps(report))


if __name__ == "__main__":
    main()
