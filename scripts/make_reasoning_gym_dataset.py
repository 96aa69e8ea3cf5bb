"""Writes the tasks of `datasets/reasoning_gym`: the same at every run, with the same version of the package.

    uv run --no-project --with "reasoning-gym==0.1.25" scripts/make_reasoning_gym_dataset.py

The families are easy ones with small numbers, and each prompt shows a solved task of its family first, so that a small
model is right now and then.
"""

import json
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

import reasoning_gym  # type: ignore[import-untyped,unused-ignore]  # not of JetGym's own requirements

SEED: Final = 20261
FAMILIES: Final[dict[str, dict[str, Any]]] = {
    "products": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
    "syllogism": {},
    "letter_counting": {"min_words": 1, "max_words": 1},
    "simple_equations": {"min_terms": 2, "max_terms": 2, "min_value": 1, "max_value": 5},
    "leg_counting": {"min_animals": 1, "max_animals": 1, "min_instances": 1, "max_instances": 2},
}
FILES: Final = {"example.jsonl": 5, "demo.jsonl": 7}
"""Tasks in each file; a file goes on where the one before it ended."""
FOLDER: Final = Path(__file__).parent.parent / "datasets" / "reasoning_gym"


def main() -> None:
    """Writes all files."""
    entries = {family: iter(_entries(family, options)) for family, options in FAMILIES.items()}
    solved = {family: next(entries[family]) for family in FAMILIES}
    turn = cycle(FAMILIES)
    for name, tasks in FILES.items():
        lines = [_line(solved[family], next(entries[family])) for family in islice(turn, tasks)]
        (FOLDER / name).write_text("".join(lines), encoding="utf-8")
        print(f"{name}: {len(lines)} tasks")


def _entries(family: str, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Entries of a family with different questions, more than are needed."""
    made = reasoning_gym.create_dataset(family, size=4 * sum(FILES.values()), seed=SEED, **options)
    return list({entry["question"]: entry for entry in made}.values())


def _line(solved: dict[str, Any], entry: dict[str, Any]) -> str:
    params = {
        "input": [
            {"role": "user", "content": solved["question"].strip()},
            {"role": "assistant", "content": solved["answer"]},
            {"role": "user", "content": entry["question"].strip()},
        ]
    }
    task = {"responses_create_params": params} | {key: entry[key] for key in ("question", "answer", "metadata")}
    return json.dumps(task, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    main()
