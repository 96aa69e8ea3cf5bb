"""What changed between the config that a run began with and the one that it goes on with?

A resumed run may have another config on purpose: more workers, another endpoint. It is never taken silently. Called
by the `run` command.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from bus.run_folder import CONFIG

_ABSENT = object()
_OF_THE_COMMAND = frozenset({"output", "input", "skip_bad_lines"})
"""Settings that say how the command was typed, not how the run is made."""


def replace_config(folder: Path, text: str) -> list[str]:
    """Makes `text` the run's `config.yaml`; returns what is different from before, one line a key.

    The config before is kept beside it as `config.1.yaml`, `config.2.yaml`, …
    """
    path = folder / CONFIG
    if not path.is_file():
        path.write_text(text)
        return []
    before, now = dict(_leaves(yaml.safe_load(path.read_text()))), dict(_leaves(yaml.safe_load(text)))
    changed = [
        f"{key} is {_shown(now.get(key, _ABSENT))}, was {_shown(before.get(key, _ABSENT))}"
        for key in {**before, **now}
        if before.get(key, _ABSENT) != now.get(key, _ABSENT) and key.partition(".")[0] not in _OF_THE_COMMAND
    ]
    if changed:
        number = 1
        while (kept := path.with_name(f"config.{number}.yaml")).exists():
            number += 1
        path.rename(kept)
        path.write_text(text)
    return changed


def _leaves(tree: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from _leaves(value, f"{above}.{key}" if above else str(key))
    else:
        yield above, tree


def _shown(value: object) -> str:
    return "not there" if value is _ABSENT else repr(value)
