"""What does a command do whose reader has seen enough, as `head` has, or whose output has no room left?

Called by the command lines. It ends with 141, as a program does that SIGPIPE ends; the signal itself would come for
each lost connection too, and would leave no time to stop what was started. Where the output cannot be written for
another reason, as on a full disk, it says so and ends with 2.
"""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

READER_GONE: Final = 141
"""Exit code: 128 and the number of the signal."""
UNWRITTEN: Final = 2
"""Exit code where what was asked for could not be told."""


@contextmanager
def ending_with_the_reader() -> Iterator[None]:
    """Within, whoever writes to standard output that takes no more raises `SystemExit`."""
    out = sys.__stdout__
    if out is not None and out is sys.stdout and not out.isatty():
        raw = _Output(out.fileno(), "wb", closefd=False)
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), out.encoding, out.errors)
    try:
        yield
    finally:
        if sys.stdout is not None:
            sys.stdout.flush()


class _Output(io.FileIO):
    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            self._take_all()
            raise SystemExit(READER_GONE) from None
        except OSError as error:
            self._take_all()
            sys.stderr.write(f"error: standard output cannot be written: {error.strerror}\n")
            raise SystemExit(UNWRITTEN) from None

    def _take_all(self) -> None:
        """What is still written on the way out goes nowhere."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
