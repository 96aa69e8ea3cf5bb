"""Who uses a run's directory right now?

`RunFiles` holds the directory for one process at a time and says how to reach what is live in it. Of a start that
failed it leaves what workers said, and no log. Called by the commands; `naming` and `write_whole` by whoever writes
into a directory. What the files of it are called, `bus.run_folder` says.
"""

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from types import TracebackType
from typing import IO, Any, Final, Self

from bus.run_folder import CONFIG, LIVE, LOG, MATERIALIZED, WORKER_LOGS, live
from orchestrator.errors import UsageError

_BEGUN: Final = (MATERIALIZED, CONFIG)
"""What a run or a deployment writes once it has come up."""


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Has an error of writing to a file say which: Python names it only where a file cannot be opened."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def write_whole(path: Path, parts: Iterable[bytes]) -> None:
    """Writes a file that is there as a whole, and on the disk, or not at all; raises `OSError`."""
    partial = path.with_name(f"{path.name}.partial")
    with naming(partial), partial.open("wb") as file:
        file.writelines(parts)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class RunFiles:
    """A run's directory, held by this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file: IO[str] | None = None
        self._made = self._begun = False

    def __enter__(self) -> Self:
        self._made = not self.folder.exists()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._begun = (self.folder / LOG).exists()
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
        if kind is not None and not self._begun and not any((self.folder / name).exists() for name in _BEGUN):
            rmtree(self.folder / LOG, ignore_errors=True)  # nothing was asked for in it
            with suppress(OSError):
                (self.folder / WORKER_LOGS).rmdir()
        if self._made:
            with suppress(OSError):  # something is in it, so it stays
                self.folder.rmdir()

    def live(self, facts: dict[str, Any]) -> None:
        """Says how to reach what runs here: `url`, `namespace`, `pid`, `workers`."""
        assert self._file is not None
        with naming(self.folder / LIVE):
            self._file.truncate(0)
            self._file.write(json.dumps(facts, indent=1) + "\n")
            self._file.flush()
