"""Writes the tasks of `datasets/reasoning_gym`: the same at every run, with the same version of the package.

    uv run --no-project --with "reasoning-gym==0.1.25" scripts/make_reasoning_gym_dataset.py

The families are easy ones with small numbers, so that a small model is right now and then. `example.jsonl` has one
task of each, `demo.jsonl` seven others, family by family in turn.
"""

import json
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import reasoning_gym  # type: ignore[import-not-found,unused-ignore]  # not of JetGym's own requirements

SEED: Final = 20261
FAMILIES: Final[dict[str, dict[str, Any]]] = {
    "chain_sum": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
    "products": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
    "simple_equations": {"min_terms": 2, "max_terms": 2, "min_value": 1, "max_value": 5},
    "needle_haystack": {"min_num_statements": 3, "max_num_statements": 3},
    "leg_counting": {"min_animals": 1, "max_animals": 1, "min_instances": 1, "max_instances": 2},
}
FILES: Final = {"example.jsonl": 5, "demo.jsonl": 7}
"""Tasks in each file; a file goes on where the one before it ended."""
FORM: Final = "Answer with the result only."
FOLDER: Final = Path(__file__).parent.parent / "datasets" / "reasoning_gym"


def main() -> None:
    """Writes all files."""
    entries = {
        family: iter(reasoning_gym.create_dataset(family, size=sum(FILES.values()), seed=SEED, **options))
        for family, options in FAMILIES.items()
    }
    turn = cycle(FAMILIES)
    for name, tasks in FILES.items():
        lines = [_line(next(entries[next(turn)])) for _ in range(tasks)]
        (FOLDER / name).write_text("".join(lines), encoding="utf-8")
        print(f"{name}: {len(lines)} tasks")


def _line(entry: dict[str, Any]) -> str:
    prompt = f"{entry['question'].strip()}\n{FORM}"
    params = {"input": [{"role": "user", "content": prompt}]}
    task = {"responses_create_params": params} | {key: entry[key] for key in ("question", "answer", "metadata")}
    return json.dumps(task, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    main()
