"""What is different between two configs: when the run began and now, or where it is deployed and here?

A resumed run may have another config on purpose: more workers, another endpoint. It is never taken silently, and it
never leads to another log, in which all of the run would run again. Called by the `run` command and by `launch`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from bus.opening import recorded
from bus.run_folder import CONFIG
from orchestrator.errors import UsageError
from orchestrator.run_files import naming

_ABSENT = object()
_OF_THE_COMMAND = frozenset({"output", "input", "skip_bad_lines"})
"""Settings that say how the command was typed, not how the run is made."""


def check_log(folder: Path, tree: Mapping[str, Any]) -> None:
    """Raises `UsageError` where a run that is to be resumed began in another log than this resolved config leads to.

    How many partitions a log at a URL has is not looked at: its streams say it, whatever a client's config says.
    """
    before, now = recorded(folder, "log"), tree["log"]
    began_at, url = recorded(folder, "server").get("url"), tree["server"]["url"]
    for key in ("namespace",) if url else ("namespace", "partitions"):
        if (was := before.get(key, now[key])) != now[key]:
            raise UsageError(
                f"log.{key} is {now[key]!r}, and the run in {folder} began with {was!r}: what it has done would not be "
                f"found, and all of it would run again. Resume it with ++log.{key}={was}, or start a new run"
            )
    if began_at and not url:
        raise UsageError(
            f"the log of the run in {folder} is at {began_at}, and a server of its own would begin an empty one: "
            f"resume it with --url {began_at}, or start a new run"
        )


def replace_config(folder: Path, text: str) -> list[str]:
    """Makes `text` the run's `config.yaml`; returns what is different from before, one line a key.

    The config before is kept beside it as `config.1.yaml`, `config.2.yaml`, …
    """
    path = folder / CONFIG
    if not path.is_file():
        with naming(path):
            path.write_text(text)
        return []
    changed = [
        f"{key} is {now}, was {before}"
        for key, now, before in differences(yaml.safe_load(text), yaml.safe_load(path.read_text()))
        if key.partition(".")[0] not in _OF_THE_COMMAND
    ]
    if changed:
        number = 1
        while (kept := path.with_name(f"config.{number}.yaml")).exists():
            number += 1
        path.rename(kept)
        with naming(path):
            path.write_text(text)
    return changed


def differences(tree: Any, other: Any) -> Iterator[tuple[str, str, str]]:
    """Each key that differs, with its value in `tree` and in `other` as they are shown to a person."""
    here, there = dict(_leaves(tree)), dict(_leaves(other))
    for key in {**there, **here}:
        if (mine := here.get(key, _ABSENT)) != (theirs := there.get(key, _ABSENT)):
            yield key, _shown(key, mine), _shown(key, theirs)


def _leaves(tree: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from _leaves(value, f"{above}.{key}" if above else str(key))
    else:
        yield above, tree


def _shown(key: str, value: object) -> str:
    if value is _ABSENT:
        return "not there"
    return "no bound" if (key, value) == ("log.max_bytes", -1) else repr(value)
