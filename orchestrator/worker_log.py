"""What does a worker say, and where is it kept?

Copies what a worker process prints into its log file, line by line and without secrets, however long a line is. Keeps
the last lines, and what the worker said of its own end, for whoever has to tell of it. Called by `supervise`. It starts
and ends nothing.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from components.workers.exits import SAID
from orchestrator.redaction import Redactor

_CHUNK: Final = 65_536
"""Bytes that are read at once. A line that is longer is written in pieces."""
_AHEAD: Final = 4_096
"""Characters behind a piece that are looked at too: a secret may begin in it."""
_TAIL_LINES: Final = 15


class WorkerLog:
    """What one worker says, one life of it after the other."""

    def __init__(self, path: Path, redactor: Redactor) -> None:
        self.path = path
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)
        """The last lines of the present life, or of the last one."""
        self.said: dict[str, str] = {}
        """What it said of its own end in that life: the message of each such line (`components.workers.exits`)."""
        self._redactor = redactor
        self._file: IO[bytes] | None = None

    @contextmanager
    def life(self) -> Iterator[None]:
        """Of one process, which is copied meanwhile."""
        self.tail.clear()
        self.said.clear()
        with self.path.open("ab", buffering=0) as self._file:
            yield
        self._file = None

    async def copy(self, stream: asyncio.StreamReader, taken: Callable[[bytes], bool] = lambda _: False) -> None:
        """Copies what comes, but for the lines that are `taken`, until there is no more."""
        rest = b""
        while chunk := await stream.read(_CHUNK):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if not taken(line):
                    self._write(line.decode(errors="replace"))
            if len(rest) > _CHUNK:
                text = rest.decode(errors="surrogateescape")
                place = self._redactor.place_to_cut(text, len(text) - _AHEAD)
                self._write(text[:place].encode(errors="surrogateescape").decode(errors="replace"))
                rest = text[place:].encode(errors="surrogateescape")
        if rest:
            self._write(rest.decode(errors="replace"))

    def _write(self, line: str) -> None:
        text = self._redactor.text(line)
        self.tail.append(text)
        for event in SAID.values():
            if event in text:
                with suppress(ValueError, AttributeError):
                    said = json.loads(text)
                    if said.get("event") == event:
                        self.said[event] = str(said.get("message", ""))
        if self._file is not None:
            with suppress(OSError):  # no room on the disk: the line is lost, but the worker must not wait for a reader
                self._file.write(text.encode() + b"\n")
