"""Which tasks are there? Rooms of boxes, drawn from a seed. Pure.

`python -m examples.grpo_cpu.tasks --count 5 --seed 0` prints them as the lines of a dataset.
"""

import argparse
import json
import random
from collections.abc import Iterator
from itertools import count, islice
from typing import Final

from contracts.base import JsonObject

COLOURS: Final = (
    "red", "blue", "green", "white", "black", "gold", "pink", "grey", "brown", "orange", "purple", "silver",
    "amber", "teal", "lime", "ivory", "coral", "cream", "navy", "olive", "plum", "rose", "ruby", "sand",
)  # fmt: skip
"""Names of boxes, and codes."""
LONGEST: Final = 3
"""Boxes on the way to the code, at most."""


def draw(random_: random.Random, room: int) -> JsonObject:
    """One task, as a line of a dataset has it; its number makes it one of its own where chance repeats itself."""
    path = random_.sample(COLOURS, random_.randint(1, LONGEST))
    asked = f'Find the code. Begin with "{path[0]}".'
    request = {"input": [{"role": "user", "content": asked}]}
    return {"responses_create_params": request, "path": path, "code": random_.choice(COLOURS), "room": room}


def tasks(seed: int | str) -> Iterator[JsonObject]:
    """Tasks without end; the same seed gives the same ones."""
    random_ = random.Random(f"boxes-{seed}")  # noqa: S311 - no secret
    return (draw(random_, room) for room in count())


def main() -> None:
    """Prints tasks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for task in islice(tasks(args.seed), args.count):
        print(json.dumps(task))


if __name__ == "__main__":
    main()
