"""Writes verdicts into files for programs: JUnit XML for a CI, JSON lines for everything else.

Called by `replay verify`. Each verdict is written as it comes, so a run may have any number of rollouts.
"""

from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self
from xml.sax.saxutils import escape, quoteattr

import msgspec

from replay.errors import NoSource
from replay.page import safe
from replay.verify import Verdict

_TAGS: Final = {"differs": "failure", "could not run": "error"}


class JsonLines:
    """One line a verdict."""

    def __init__(self, path: Path) -> None:
        self._file = _opened(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, verdict: Verdict) -> None:
        """Writes one."""
        self._file.write(msgspec.json.encode(verdict) + b"\n")


class Junit:
    """A test suite; each agent that is verified is a test class, each rollout a test case."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._cases = path.with_name(f"{path.name}.partial")
        self._file = _opened(self._cases)
        self._counts = {"same": 0, "differs": 0, "could not run": 0}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if error is None:
            self._assemble()
        self._cases.unlink()

    def add(self, verdict: Verdict) -> None:
        """Writes one."""
        self._counts[verdict.verdict] += 1
        case = (
            f"<testcase classname={_attribute(verdict.implementation or verdict.agent or 'replay')} "
            f"name={_attribute(verdict.rollout_id)}"
        )
        if verdict.verdict == "same":
            self._file.write(f"{case}/>\n".encode())
            return
        tag, said = _TAGS[verdict.verdict], verdict.reason
        if (departure := verdict.departure) is not None:
            said = (
                f"{departure.file}:{departure.line}: call {departure.call_key}: {departure.reason}\n{departure.field}\n"
                f"recorded: {departure.recorded}\nnow: {departure.made}"
            )
        message = said.partition("\n")[0]
        self._file.write(
            f"{case}><{tag} message={_attribute(message)}>{escape(safe(said))}</{tag}></testcase>\n".encode()
        )

    def _assemble(self) -> None:
        counts = self._counts
        total = sum(counts.values())
        head = (
            f'<testsuite name="replay verify" tests="{total}" failures="{counts["differs"]}" '
            f'errors="{counts["could not run"]}">'
        )
        with self._path.open("wb") as out, self._cases.open("rb") as cases:
            out.write(f'<?xml version="1.0" encoding="UTF-8"?>\n{head}\n'.encode())
            for line in cases:
                out.write(line)
            out.write(b"</testsuite>\n")


def _attribute(text: str) -> str:
    return quoteattr(safe(text).replace("\n", " "))


def _opened(path: Path) -> IO[bytes]:
    try:
        return path.open("wb")
    except OSError as error:
        raise NoSource(f"{path} cannot be written: {error.strerror}") from error
