"""Throughput with token IDs and log-probabilities in the log, beside the same run without, on the same machine.

`jetgym run` as a user runs it, 3 turns, `scripted_model` at zero latency. With tokens each call has a prompt of 2,000
and more and 500 generated ones, with log-probabilities; each prompt begins with the tokens of the turn before. The two
alternate; the medians are reported.

    python benchmarks/tokens.py --json

prints

    with_tokens   rollouts a second
    without       likewise
    ratio         of the two
"""

import argparse
import statistics
import sys

from benchmarks import running
from benchmarks.throughput import ours

TURNS = 3
PROMPT, GENERATED = 2_000, 500
ROLLOUTS = 3_000
CARRIED = f"++policy.models.scripted_model.tokens={{prompt:{PROMPT},generated:{GENERATED}}}"


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rollouts", type=int, default=ROLLOUTS, help="in each round, on each side")
    parser.add_argument("--json", action="store_true", help="print one JSON line")
    args = parser.parse_args()

    carried, plain = [], []
    try:
        for _ in range(args.rounds):
            plain.append(ours(TURNS, args.rollouts))
            carried.append(ours(TURNS, args.rollouts, CARRIED))
    except running.Failed as failed:
        sys.exit(str(failed))
    figures = {
        "with_tokens": round(statistics.median(carried)),
        "without": round(statistics.median(plain)),
        "ratio": round(statistics.median(carried) / statistics.median(plain), 3),
    }
    running.report(figures, as_json=args.json)


if __name__ == "__main__":
    main()
