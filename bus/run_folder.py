"""What is in the directory of a run or of a deployment, and is something live in it?

`jetgym` writes such a directory and `replay` reads it, so the names of its files stand here. It reads small files and
starts nothing; what is in them, it does not know.
"""

import fcntl
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

RESULTS: Final = Path("results")
"""Where they are made, unless something else is asked for."""

CONFIG: Final = "config.yaml"
"""The config as resolved, without secrets."""
MATERIALIZED: Final = "materialized_inputs.jsonl"
"""What is asked for, one line a rollout; it makes the directory a run's."""
ROLLOUTS: Final = "rollouts.jsonl"
FAILURES: Final = "failures.jsonl"
METRICS: Final = "metrics.json"
IMPORTED: Final = "imported.json"
"""What the runs of an imported log came to: there may be several in one directory."""
FORKS: Final = "forks.jsonl"
"""The runs of forks that went on in what was live here: a line when they are asked for, one when they have ended."""
LOG: Final = "log"
"""The store of the embedded server; not there where the log is elsewhere."""
WORKER_LOGS: Final = "logs"
LIVE: Final = "deployment.json"
"""How to reach what is live in it; the process that holds the directory has a lock on this file."""


class _Input(msgspec.Struct):
    rollout_id: str


class _Result(msgspec.Struct):
    run_id: str


def read_lines(path: Path, kind: type[T]) -> Iterator[T | None]:
    """The lines of a file one by one, None for each that is damaged: cut, or no JSON of this kind; none of no file."""
    decode = msgspec.json.Decoder(kind).decode
    with suppress(FileNotFoundError), path.open("rb") as file:
        for line in file:
            try:
                yield decode(line) if line.endswith(b"\n") else None
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                yield None


def run_id(folder: Path) -> str | None:
    """The ID of the run in it; None where there is no run, or no line that can be read. Raises `OSError`.

    It is what stands before task and index in the ID of a rollout.
    """
    if not (folder / MATERIALIZED).exists():
        return None
    for asked in filter(None, read_lines(folder / MATERIALIZED, _Input)):
        return asked.rollout_id.rsplit("-", 2)[0]
    for name in (ROLLOUTS, FAILURES):
        for ended in filter(None, read_lines(folder / name, _Result)):
            return ended.run_id
    return None


def noted(folder: Path, kind: type[T]) -> list[T]:
    """What is noted of the runs that its log holds beside its own: imported ones and forks, of each the newest last."""
    with suppress(OSError):
        forks = [fork for fork in read_lines(folder / FORKS, kind) if fork is not None]
        with suppress(FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
            return msgspec.json.decode((folder / IMPORTED).read_bytes(), type=list[kind]) + forks  # type: ignore[valid-type]
        return forks
    return []


def live(folder: Path) -> dict[str, Any] | None:
    """What is live in it: `url`, `namespace`, `pid`, `workers`. Empty before it can be reached, None if nothing is."""
    try:
        with (folder / LIVE).open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                with suppress(json.JSONDecodeError):  # it is not yet written, or is being written
                    facts: dict[str, Any] = json.loads(file.read())
                    return facts
                return {}
    except FileNotFoundError:
        return None
    return None  # left behind by a process that was killed
