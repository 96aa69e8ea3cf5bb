"""Who uses a run's directory right now, and what is in it besides the results?

`RunFiles` holds the directory for one process at a time and says in `deployment.json` how to reach what is live in it.
Called by `launch`, and by `status` to find a deployment by its directory.
"""

import fcntl
import json
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from orchestrator.errors import UsageError

LIVE: Final = "deployment.json"
MATERIALIZED: Final = "materialized_inputs.jsonl"
CONFIG: Final = "config.yaml"


class RunFiles:
    """A run's directory, held by this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file: IO[str] | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._file = (self.folder / LIVE).open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            facts = live(self.folder) or {}
            who = f" (process {facts['pid']}, {facts['url']})" if {"pid", "url"} <= facts.keys() else ""
            raise UsageError(f"{self.folder} is in use by another jetgym{who}") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._file is not None
        (self.folder / LIVE).unlink(missing_ok=True)
        self._file.close()

    def live(self, facts: dict[str, Any]) -> None:
        """Says how to reach what runs here: `url`, `namespace`, `pid`, `workers`."""
        assert self._file is not None
        self._file.truncate(0)
        self._file.write(json.dumps(facts, indent=1) + "\n")
        self._file.flush()


def live(folder: Path) -> dict[str, Any] | None:
    """What runs in this directory now, or None; empty while it starts."""
    try:
        with (folder / LIVE).open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                facts: dict[str, Any] = json.loads(file.read() or "{}")
                return facts
    except FileNotFoundError:
        return None
    return None  # left behind by a process that was killed
